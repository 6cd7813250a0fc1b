"""From a claimed job to a request for the engine: reading the body and tokenising."""

from __future__ import annotations

from typing import Any

import structlog
from pydantic import ValidationError

from engine.chat_template import ChatTemplateError
from engine.protocol import EngineRequest
from engine.sampling import SamplingParams
from engine.tokenizer import Tokenizer
from models.errors import InvalidRequest
from models.lease import ClaimedJob
from models.request import ENDPOINTS, ChatBody, InferenceBody
from models.strict_json import parse_json
from worker.events import ReadyJob, Refused
from worker.priority import PRIORITIES

_log = structlog.get_logger()


class Preparer:
    """Turns jobs into engine requests for one model."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        max_model_len: int,
        default_max_tokens: int,
        share_identical: bool = False,
    ) -> None:
        self._tokenizer = tokenizer
        self._share_identical = share_identical
        self._max_model_len = max_model_len
        self._default_max_tokens = default_max_tokens

    def prepare(self, job: ClaimedJob) -> ReadyJob | Refused:
        """Return what the engine shall compute, or why this job cannot run."""
        try:
            body: dict[str, Any] = {"model": job.model, **parse_json(job.body)}
            request = ENDPOINTS[job.endpoint].model_validate(body)
            token_ids = self._encode(request)
        except (InvalidRequest, ValidationError, KeyError, TypeError) as error:
            # Accept checked it; so it was accepted by another version of Headrace.
            return Refused(job, "invalid_request", f"The stored request cannot be read: {error}.")
        except ChatTemplateError as error:
            return Refused(job, "invalid_value", f"The chat template refused: {error}.", "body.messages")
        except Exception as error:
            # Not worth a worker: the next one would take it up again, and end as well.
            _log.exception("request_not_prepared", job_id=job.id)
            return Refused(job, "internal_error", f"The request could not be tokenised: {error}.")
        room = self._max_model_len - len(token_ids)
        if room < 1:
            return Refused(
                job, "context_length_exceeded", self._too_long(len(token_ids)), _prompt_param(request)
            )
        max_tokens = request.token_limit(min(self._default_max_tokens, room))
        if max_tokens > room:
            field = "min_tokens" if request.min_tokens > room else "max_tokens"
            message = f"{self._too_long(len(token_ids))[:-1]} and {field} asks for {max_tokens} more."
            return Refused(job, "context_length_exceeded", message, f"body.{field}")
        return ReadyJob(job, self._request(job, request, token_ids, max_tokens))

    def _encode(self, request: InferenceBody) -> list[int]:
        if isinstance(request, ChatBody):
            messages = [{"role": message.role, "content": message.text} for message in request.messages]
            return self._tokenizer.encode_chat(messages)
        return self._tokenizer.encode_text(request.prompt_text)

    def _request(
        self, job: ClaimedJob, request: InferenceBody, token_ids: list[int], max_tokens: int
    ) -> EngineRequest:
        return EngineRequest(
            id=job.id,
            token_ids=token_ids,
            max_tokens=max_tokens,
            n=request.n,
            sampling=_sampling(request, job.seed),
            stop=request.stop_strings,
            priority=PRIORITIES[job.lane],
            deadline=job.deadline,
            share_group=job.batch_id if self._share_identical else None,
        )

    def _too_long(self, num_tokens: int) -> str:
        return f"The context holds {self._max_model_len} tokens; the prompt has {num_tokens}."


def _sampling(request: InferenceBody, seed: int) -> SamplingParams:
    return SamplingParams(
        temperature=request.temperature,
        top_p=request.top_p,
        top_k=request.top_k or 0,
        min_p=request.min_p,
        presence_penalty=request.presence_penalty,
        frequency_penalty=request.frequency_penalty,
        repetition_penalty=request.repetition_penalty,
        logit_bias=request.biases,
        seed=seed,
        stop_token_ids=tuple(request.stop_token_ids),
        ignore_eos=request.ignore_eos,
        min_tokens=request.min_tokens,
        num_logprobs=request.num_logprobs,
    )


def _prompt_param(request: InferenceBody) -> str:
    return "body.messages" if isinstance(request, ChatBody) else "body.prompt"
