"""One of a job's completions, growing step by step."""

from __future__ import annotations

from typing import Any

from engine.protocol import EngineOutput, FailureCode, FinishReason, TokenLogprobs
from models.strict_json import storable_text
from worker.logprob_body import TokenBytes, chat_logprobs, completion_logprobs


class Choice:
    """What the engine has said so far about one completion."""

    def __init__(self) -> None:
        self.num_tokens = 0
        self.finish_reason: FinishReason | None = None
        self.error: str | None = None
        self.error_code: FailureCode | None = None
        self._texts: list[str] = []
        self._logprobs: list[TokenLogprobs] = []

    def add(self, output: EngineOutput) -> None:
        """Take in what one step has added."""
        self._texts.append(output.text)
        self._logprobs += output.logprobs or ()
        self.num_tokens += len(output.token_ids)
        self.finish_reason = output.finish_reason
        self.error = output.error
        self.error_code = output.error_code

    def body(self, *, is_chat: bool, with_logprobs: bool, token_bytes: TokenBytes) -> dict[str, Any]:
        """The choice in OpenAI's shape, its index left out."""
        text = storable_text("".join(self._texts))
        said = (
            {"message": {"role": "assistant", "content": text, "refusal": None}}
            if is_chat
            else {"text": text}
        )
        write = chat_logprobs if is_chat else completion_logprobs
        logprobs = write(self._logprobs, token_bytes) if with_logprobs else None
        reason = None if self.finish_reason is None else self.finish_reason.value
        return {**said, "logprobs": logprobs, "finish_reason": reason}
