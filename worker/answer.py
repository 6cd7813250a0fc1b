"""One job's answer, growing step by step, and how it is written down at the end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine.protocol import EngineOutput, EngineRequest, FailureCode, FinishReason
from models.lease import ClaimedJob
from models.publication import Outcome, Usage
from models.request import CHAT_COMPLETIONS
from models.strict_json import dump_json
from models.tables.job import JobStatus
from worker.choice import Choice
from worker.logprob_body import TokenBytes

#: Errors of the engine that may not come again.
_RETRYABLE: frozenset[FailureCode | None] = frozenset({"out_of_memory"})


class Answer:
    """What the engine has said so far about one job."""

    def __init__(self, job: ClaimedJob, request: EngineRequest, token_bytes: TokenBytes) -> None:
        self.job = job
        self._num_prompt_tokens = len(request.token_ids)
        self._with_logprobs = request.sampling.num_logprobs is not None
        self._token_bytes = token_bytes
        self._num_cached_tokens = 0
        self._choices = [Choice() for _ in range(request.n)]
        self._first_token_at: float | None = None

    def add(self, output: EngineOutput, at: float) -> None:
        """Take in what one step has added, at a time in monotonic seconds."""
        self._choices[output.choice].add(output)
        self._num_cached_tokens = max(self._num_cached_tokens, output.cached_tokens)
        if self._first_token_at is None and output.token_ids:
            self._first_token_at = at

    @property
    def is_over(self) -> bool:
        """Whether all choices have ended."""
        return all(choice.finish_reason is not None for choice in self._choices)

    def outcome(self, at: float) -> Outcome | None:
        """Say how the job ended; None where it was cancelled, which is stored already.

        All choices count: the job has succeeded only if each of them has.
        """
        reasons = {choice.finish_reason for choice in self._choices}
        if FinishReason.CANCELLED in reasons:
            return None
        if FinishReason.ERROR in reasons:
            return self._failure(at)
        if FinishReason.DEADLINE in reasons:
            return self._outcome(JobStatus.EXPIRED, at, error_code="deadline_exceeded")
        return self._outcome(JobStatus.SUCCEEDED, at, body=dump_json(self._body()))

    def _failure(self, at: float) -> Outcome:
        failed = [choice for choice in self._choices if choice.finish_reason is FinishReason.ERROR]
        # An error that another try would meet again counts more than one that it might not.
        choice = next((one for one in failed if one.error_code not in _RETRYABLE), failed[0])
        code = choice.error_code or "engine_error"
        error = error_text(code, choice.error or "The engine could not compute this request.")
        return replace(
            self._outcome(JobStatus.FAILED, at, error=error, error_code=code), may_retry=code in _RETRYABLE
        )

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
            usage=Usage(self._num_prompt_tokens, self._num_tokens, self._num_cached_tokens),
            since_first_token_seconds=None if self._first_token_at is None else at - self._first_token_at,
        )

    @property
    def _num_tokens(self) -> int:
        return sum(choice.num_tokens for choice in self._choices)

    def _body(self) -> dict[str, Any]:
        """Return the response in OpenAI's shape."""
        is_chat = self.job.endpoint == CHAT_COMPLETIONS
        form = {"is_chat": is_chat, "with_logprobs": self._with_logprobs}
        bare_id = self.job.id.removeprefix("job_")
        return {
            "id": f"chatcmpl-{bare_id}" if is_chat else f"cmpl-{bare_id}",
            "object": "chat.completion" if is_chat else "text_completion",
            "created": int(self.job.created_at.timestamp()),
            "model": self.job.model,
            "choices": [
                {"index": index, **choice.body(token_bytes=self._token_bytes, **form)}
                for index, choice in enumerate(self._choices)
            ],
            "usage": {
                "prompt_tokens": self._num_prompt_tokens,
                "completion_tokens": self._num_tokens,
                "total_tokens": self._num_prompt_tokens + self._num_tokens,
                "prompt_tokens_details": {"cached_tokens": self._num_cached_tokens},
            },
        }


def error_text(code: str, message: str, param: str | None = None) -> str:
    """Write an error as it is stored with a job."""
    return dump_json({"code": code, "message": message, "param": param})
