"""Jobs as the client sees them."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime
from typing import Literal

from api.replies import (
    JobErrorBody,
    JobReply,
    PromptTokensDetails,
    ResponseBody,
    UsageBody,
    WindowBody,
)
from models.job_error import JobError
from models.job_store import MAX_POSITION, JobRecord, Place
from models.tables.job import Job, JobRequest, JobResult, JobStatus, Lane
from models.tables.worker import Window


def view_job(
    record: JobRecord, *, place: Place | None = None, tokens_per_second: float | None = None
) -> JobReply:
    """Return a job for the client; with its place if it is queued and that was looked up."""
    job = record.job
    return JobReply(
        id=job.id,
        status=JobStatus(job.status),
        endpoint=job.endpoint,
        model=job.model,
        lane=Lane(job.lane),
        batch_id=job.batch_id,
        line=job.line,
        revision=job.revision,
        retry_of=job.retry_of,
        custom_id=job.custom_id,
        metadata=_metadata(record.request),
        response=view_response(record.result),
        error=view_error(job, record.result),
        usage=_usage(job),
        window=_window(record.window),
        attempt=job.attempt,
        seed=job.seed,
        queue_position=view_position(place),
        eta_seconds=_eta_seconds(place, tokens_per_second),
        created_at=job.created_at.timestamp(),
        started_at=_seconds(job.started_at),
        first_token_at=_seconds(job.first_token_at),
        finished_at=_seconds(job.finished_at),
        deadline_at=_seconds(job.deadline_at),
    )


def view_response(result: JobResult | None) -> ResponseBody | None:
    """Return the response of a job that succeeded."""
    if result is None or result.body is None:
        return None
    return ResponseBody(status_code=200, body=json.loads(result.body))


def view_error(job: Job, result: JobResult | None) -> JobErrorBody | None:
    """Return why a finished job has no response."""
    error = JobError.of(job, result)
    return None if error is None else JobErrorBody(**asdict(error))


def view_position(place: Place | None) -> int | Literal["1000+"] | None:
    """Return where a queued job stands, as far as that is counted."""
    if place is None:
        return None
    return place.num_before + 1 if place.num_before < MAX_POSITION else "1000+"


def _metadata(request: JobRequest | None) -> dict[str, str] | None:
    if request is None or request.metadata_text is None:
        return None
    found: dict[str, str] = json.loads(request.metadata_text)
    return found


def _usage(job: Job) -> UsageBody | None:
    if job.num_prompt_tokens is None or job.num_completion_tokens is None:
        return None
    return UsageBody(
        prompt_tokens=job.num_prompt_tokens,
        completion_tokens=job.num_completion_tokens,
        total_tokens=job.num_prompt_tokens + job.num_completion_tokens,
        prompt_tokens_details=PromptTokensDetails(cached_tokens=job.num_cached_tokens or 0),
    )


def _window(window: Window | None) -> WindowBody | None:
    if window is None:
        return None
    return WindowBody(
        id=window.id, reason=window.reason, num_jobs=window.num_jobs, num_tokens=window.num_tokens
    )


def _eta_seconds(place: Place | None, tokens_per_second: float | None) -> float | None:
    # Beyond the last exact position the tokens before a job are not counted to the end.
    if place is None or not tokens_per_second or place.num_before >= MAX_POSITION:
        return None
    return round(place.tokens_before / tokens_per_second, 3)


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()
