"""Publication: results become part of the truth, each exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from sqlalchemy import insert

from models.backoff import RETRY_BACKOFF, Backoff
from models.database import UNWRITABLE, Database
from models.failpoints import failpoint
from models.incidents import count_incidents
from models.job_error import JobError
from models.lease import UNHELD
from models.move import Move, move_jobs
from models.tables.incident import Incident
from models.tables.job import FINAL_STATUSES, Job, JobResult, JobStatus

_log = structlog.get_logger()

#: So often a job is queued again after an error that may not come again.
MAX_RETRIES = 3

#: By so much a worker may end a job before its deadline, by the database's clock.
_CLOCK_TOLERANCE = timedelta(seconds=2)

_NOT_STORED = JobError("internal_error", "The result of this request cannot be stored.")


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
    #: Whether another try may end better: then the job is queued again, a few times.
    may_retry: bool = False
    #: How long before the end the first token came out.
    since_first_token_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class _Found:
    """A job as its outcome found it."""

    model: str
    token: int
    status: JobStatus

    def discards(self, outcome: Outcome) -> bool:
        """Say whether an outcome came too late. One that is stored already came twice, after a lost reply."""
        if self.token != outcome.token:
            return True
        may_be_queued = outcome.may_retry or outcome.status == JobStatus.EXPIRED
        is_queued_again = may_be_queued and self.status == JobStatus.QUEUED
        return not is_queued_again and self.status not in (JobStatus.RUNNING, outcome.status)


def publish(database: Database, outcomes: Sequence[Outcome], *, backoff: Backoff = RETRY_BACKOFF) -> set[str]:
    """Store results in one transaction and return the ids of the jobs that they ended, or queued again.

    What is missing from the return value was cancelled, or belongs to another worker by now; its
    result is discarded, and counted. One that is told to be overdue and is not, since its batch got more time
    meanwhile, is queued again. A result that the database does not take fails its job alone. Only
    after this has returned may the entries be acknowledged.
    """
    try:
        return _publish(database, outcomes, backoff)
    except UNWRITABLE as error:
        if len(outcomes) > 1:
            return set().union(*(publish(database, [outcome], backoff=backoff) for outcome in outcomes))
        if outcomes[0].error == _NOT_STORED.text():
            raise
        _log.error("result_not_stored", job_id=outcomes[0].job_id, error=f"{error}")
        return publish(database, [_not_stored(outcomes[0])], backoff=backoff)


def _publish(database: Database, outcomes: Sequence[Outcome], backoff: Backoff) -> set[str]:
    # By claim, not by job: after an outage one worker may publish for two claims of the same job at once.
    by_claim = {(outcome.job_id, outcome.token): outcome for outcome in outcomes}
    found: dict[str, _Found] = {}

    def finish(job: Job, at: datetime) -> Move | None:
        found[job.id] = _Found(job.model, job.token, JobStatus(job.status))
        outcome = by_claim.get((job.id, job.token))
        if job.status != JobStatus.RUNNING or outcome is None:
            return None
        if outcome.may_retry and job.num_retries < MAX_RETRIES:
            return _retry(job, at, backoff)
        if outcome.status == JobStatus.EXPIRED and _was_put_off(job, at):
            return Move(JobStatus.QUEUED, {**UNHELD, "available_at": at})
        return Move(outcome.status, _values(outcome, at))

    with database.transaction() as session:
        moved = move_jobs(session, [outcome.job_id for outcome in outcomes], finish)
        texts = [
            {"job_id": job.id, "body": outcome.body, "error": outcome.error}
            for job in moved
            if job.status in FINAL_STATUSES
            and ((outcome := by_claim[job.id, job.token]).body is not None or outcome.error is not None)
        ]
        if texts:
            session.execute(insert(JobResult), texts)
        discarded = [
            job.model for one in outcomes if (job := found.get(one.job_id)) is not None and job.discards(one)
        ]
        count_incidents(session, Incident.STALE_RESULT, discarded)
        failpoint("publish_before_commit")
    failpoint("publish_after_commit")
    return {job.id for job in moved}


def _retry(job: Job, at: datetime, backoff: Backoff) -> Move:
    number = job.num_retries + 1
    values = {"num_retries": number, "available_at": at + backoff.pause(number)}
    # It ran to its error and nothing crashed: whatever it was suspected of, it has not done.
    return Move(JobStatus.QUEUED, {**UNHELD, **values, "isolation": 0, "crashes_alone": 0})


def _was_put_off(job: Job, at: datetime) -> bool:
    """Whether a job's deadline was moved while a worker computed it, who knows the earlier one."""
    return job.deadline_at is not None and job.deadline_at > at + _CLOCK_TOLERANCE


def _not_stored(outcome: Outcome) -> Outcome:
    return Outcome(
        outcome.job_id,
        outcome.token,
        JobStatus.FAILED,
        error=_NOT_STORED.text(),
        error_code=_NOT_STORED.code,
    )


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
