"""Publication: results become part of the truth, each exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import insert

from models.database import Database
from models.move import Move, move_jobs
from models.tables.job import Job, JobResult, JobStatus


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one job."""

    num_prompt_tokens: int
    num_completion_tokens: int
    num_cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one job ended, under the token it was claimed with."""

    job_id: str
    token: int
    status: JobStatus
    #: The response body as JSON text.
    body: str | None = None
    #: The error `{code, message, param}` as JSON text, and its code.
    error: str | None = None
    error_code: str | None = None
    usage: Usage | None = None
    #: How long before the end the first token came out.
    since_first_token_seconds: float | None = None


def publish(database: Database, outcomes: Sequence[Outcome]) -> set[str]:
    """Store results in one transaction and return the ids of the jobs that they ended.

    What is missing from the return value was cancelled, or belongs to another worker by now; its
    result is discarded. Only after this has returned may the entries be acknowledged.
    """
    # By claim, not by job: after an outage one worker may publish for two claims of the same job at once.
    by_claim = {(outcome.job_id, outcome.token): outcome for outcome in outcomes}

    def finish(job: Job, at: datetime) -> Move | None:
        outcome = by_claim.get((job.id, job.token))
        if job.status != JobStatus.RUNNING or outcome is None:
            return None
        return Move(outcome.status, _values(outcome, at))

    with database.transaction() as session:
        moved = move_jobs(session, [outcome.job_id for outcome in outcomes], finish)
        stored = {job.id for job in moved}
        texts = [
            {"job_id": job.id, "body": outcome.body, "error": outcome.error}
            for job in moved
            if (outcome := by_claim[job.id, job.token]).body is not None or outcome.error is not None
        ]
        if texts:
            session.execute(insert(JobResult), texts)
    return stored


def _values(outcome: Outcome, at: datetime) -> dict[str, object]:
    values: dict[str, object] = {
        "finished_at": at,
        "lease_until": None,
        "error_code": outcome.error_code,
    }
    if outcome.usage is not None:
        values |= {
            "num_prompt_tokens": outcome.usage.num_prompt_tokens,
            "num_completion_tokens": outcome.usage.num_completion_tokens,
            "num_cached_tokens": outcome.usage.num_cached_tokens,
        }
    if outcome.since_first_token_seconds is not None:
        values["first_token_at"] = at - timedelta(seconds=outcome.since_first_token_seconds)
    return values
