"""One completion of a request while it grows."""

from __future__ import annotations

from typing import Any

from engine.detokenizer import Detokenizer
from engine.protocol import EngineOutput, FailureCode, FinishReason
from engine.sampler import Drawn
from engine.sequence import Sequence


class Completion:
    """A sequence and its text; says what each drawn token adds."""

    def __init__(self, sequence: Sequence, text: Detokenizer) -> None:
        self.sequence = sequence
        self.text = text
        self._has_told_cached_tokens = sequence.choice > 0

    def end(
        self, reason: FinishReason, *, error: str | None = None, error_code: FailureCode | None = None
    ) -> EngineOutput:
        """The last output of one that ends before its time; after an error, without more text."""
        rest = self.text.flush() if error is None else ""
        return self._output(text=rest, finish_reason=reason, error=error, error_code=error_code)

    def take(self, drawn: Drawn) -> EngineOutput:
        """Add a token, which may be the last; raises ArithmeticError if there is none."""
        token = drawn.token
        if token is None:
            raise ArithmeticError("the model's output was not finite for this request")
        sequence, text = self.sequence, self.text
        if token in sequence.sampling.stop_token_ids:
            return self._output(text=text.flush(), finish_reason=FinishReason.STOP)
        sequence.append(token)
        delta = text.push(token)
        reason = None
        if not text.stopped and sequence.num_completion_tokens == sequence.request.max_tokens:
            reason = FinishReason.LENGTH
            delta += text.flush()
        if text.stopped:
            reason = FinishReason.STOP
        logprobs = None if drawn.logprobs is None else (drawn.logprobs,)
        return self._output(token_ids=(token,), text=delta, logprobs=logprobs, finish_reason=reason)

    def _output(self, **added: Any) -> EngineOutput:
        told, self._has_told_cached_tokens = self._has_told_cached_tokens, True
        sequence = self.sequence
        return EngineOutput(
            id=sequence.request.id,
            choice=sequence.choice,
            cached_tokens=0 if told else sequence.num_cached_tokens,
            **added,
        )
