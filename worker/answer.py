"""One job's answer, growing step by step, and how it is written down at the end."""

from __future__ import annotations

from typing import Any

from engine.protocol import EngineOutput, FinishReason
from models.lease import ClaimedJob
from models.publication import Outcome, Usage
from models.request import CHAT_COMPLETIONS
from models.strict_json import dump_json
from models.tables.job import JobStatus


class Answer:
    """What the engine has said so far about one job."""

    def __init__(self, job: ClaimedJob, num_prompt_tokens: int) -> None:
        self.job = job
        self._num_prompt_tokens = num_prompt_tokens
        self._num_completion_tokens = 0
        self._num_cached_tokens = 0
        self._texts: list[str] = []
        self._first_token_at: float | None = None

    def add(self, output: EngineOutput, at: float) -> None:
        """Take in what one step has added, at a time in monotonic seconds."""
        self._texts.append(output.text)
        self._num_completion_tokens += len(output.token_ids)
        self._num_cached_tokens = max(self._num_cached_tokens, output.cached_tokens)
        if self._first_token_at is None and output.token_ids:
            self._first_token_at = at

    def outcome(self, last: EngineOutput, at: float) -> Outcome | None:
        """Say how the job ended; None where it was cancelled, which is stored already."""
        match last.finish_reason:
            case FinishReason.STOP | FinishReason.LENGTH:
                body = dump_json(self._body(last.finish_reason))
                return self._outcome(JobStatus.SUCCEEDED, at, body=body)
            case FinishReason.DEADLINE:
                return self._outcome(JobStatus.EXPIRED, at, error_code="deadline_exceeded")
            case FinishReason.ERROR:
                code, message = "engine_error", last.error or "The engine could not compute this request."
                return self._outcome(JobStatus.FAILED, at, error=error_text(code, message), error_code=code)
            case _:
                return None

    def _outcome(
        self,
        status: JobStatus,
        at: float,
        *,
        body: str | None = None,
        error: str | None = None,
        error_code: str | None = None,
    ) -> Outcome:
        return Outcome(
            self.job.id,
            self.job.held.token,
            status,
            body=body,
            error=error,
            error_code=error_code,
            usage=Usage(self._num_prompt_tokens, self._num_completion_tokens, self._num_cached_tokens),
            since_first_token_seconds=None if self._first_token_at is None else at - self._first_token_at,
        )

    def _body(self, reason: FinishReason) -> dict[str, Any]:
        """Return the response in OpenAI's shape."""
        is_chat = self.job.endpoint == CHAT_COMPLETIONS
        text = "".join(self._texts)
        said = (
            {"message": {"role": "assistant", "content": text, "refusal": None}}
            if is_chat
            else {"text": text}
        )
        bare_id = self.job.id.removeprefix("job_")
        return {
            "id": f"chatcmpl-{bare_id}" if is_chat else f"cmpl-{bare_id}",
            "object": "chat.completion" if is_chat else "text_completion",
            "created": int(self.job.created_at.timestamp()),
            "model": self.job.model,
            "choices": [{"index": 0, **said, "logprobs": None, "finish_reason": reason.value}],
            "usage": {
                "prompt_tokens": self._num_prompt_tokens,
                "completion_tokens": self._num_completion_tokens,
                "total_tokens": self._num_prompt_tokens + self._num_completion_tokens,
                "prompt_tokens_details": {"cached_tokens": self._num_cached_tokens},
            },
        }


def error_text(code: str, message: str, param: str | None = None) -> str:
    """Write an error as it is stored with a job."""
    return dump_json({"code": code, "message": message, "param": param})
