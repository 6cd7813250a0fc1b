"""One request in the marked engine."""

from __future__ import annotations

import math
import time
from dataclasses import replace

from bench.markers import Markers
from engine.protocol import EngineOutput, EngineRequest, FinishReason, TokenLogprobs

#: What follows the echo, once for each further token.
_FURTHER_TEXT = "."
#: What no database and no client can take.
_NUL_TEXT = "\x00\ud800"


class MarkedRun:
    """Says the prompt with its first token, and a dot with each further one; all choices say the same."""

    def __init__(self, request: EngineRequest, prompt: str) -> None:
        self.id = request.id
        self.markers = Markers.of(prompt)
        self.is_new = True
        self.is_over = False
        self._request = request
        self._text = prompt + (_NUL_TEXT if self.markers.has_nul else "")
        self._num_tokens = min(self.markers.num_tokens, request.max_tokens)
        self._num_said = 0
        self._began_at = time.monotonic()

    @property
    def num_booked_tokens(self) -> int:
        """Prompt and longest completion together."""
        return len(self._request.token_ids) + self._request.max_tokens

    def slow_seconds_left(self) -> float:
        """How much longer it stays in the engine at least."""
        return max(0.0, self._began_at + self.markers.slow_seconds - time.monotonic())

    def ending(self, *, is_aborted: bool, num_earlier_ooms: int) -> FinishReason | None:
        """Why it ends now without another token, if it does."""
        if is_aborted:
            return FinishReason.CANCELLED
        if self._request.deadline is not None and self._request.deadline <= time.monotonic():
            return FinishReason.DEADLINE
        if self.markers.num_oom is None or num_earlier_ooms < self.markers.num_oom:
            return FinishReason.ERROR
        return None

    def end(self, reason: FinishReason) -> list[EngineOutput]:
        """End all choices; an error is that there is no memory."""
        self.is_over = True
        if reason is not FinishReason.ERROR:
            return self._outputs(EngineOutput(self.id, finish_reason=reason))
        error = "out of memory: a marker asks for it"
        return self._outputs(
            EngineOutput(self.id, finish_reason=reason, error=error, error_code="out_of_memory")
        )

    def speak(self) -> list[EngineOutput]:
        """Say the next token of each choice; nothing while a slow one has said all but its last."""
        if self._num_said == self._num_tokens - 1 and self.slow_seconds_left() > 0:
            return []
        token_id = self._request.token_ids[self._num_said % len(self._request.token_ids)]
        text = _FURTHER_TEXT if self._num_said else self._text
        self._num_said += 1
        self.is_over = self._num_said == self._num_tokens
        is_full = self._num_said == self._request.max_tokens
        reason = FinishReason.LENGTH if is_full else FinishReason.STOP
        return self._outputs(
            EngineOutput(
                self.id,
                (token_id,),
                text,
                logprobs=self._logprobs(token_id),
                finish_reason=reason if self.is_over else None,
            )
        )

    def _outputs(self, first: EngineOutput) -> list[EngineOutput]:
        return [replace(first, choice=choice) for choice in range(self._request.n)]

    def _logprobs(self, token_id: int) -> tuple[TokenLogprobs, ...] | None:
        num_top = self._request.sampling.num_logprobs
        if num_top is None:
            return None
        logprob = math.nan if self.markers.has_nul else -0.5
        return (TokenLogprobs(token_id, logprob, ((token_id, logprob),) if num_top else ()),)
