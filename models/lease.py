"""Leases: a worker's right to a job until a time, by the database's clock.

The order that keeps every job safe: claim (commit), compute, publish (commit), acknowledge. A token that
grows with each claim fences off whoever held the job before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import insert, select, update
from sqlalchemy.orm import Session

from models.consumer import Entry
from models.database import Database, now
from models.ids import new_id
from models.job_error import POISON, JobError
from models.move import Move, move_jobs
from models.tables.job import Job, JobRequest, JobResult, JobStatus, Lane
from models.tables.worker import Window

#: Jobs rescued by one transaction.
_CHUNK = 500

#: A job is tried so often; a crash counts against all that ran, so the limit is generous.
MAX_ATTEMPTS = 10

#: How a job ends when its worker publishes; anything else ends a lease from outside.
_ENDED_BY_WORKER = frozenset({JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.EXPIRED})

#: What a job looks like when nobody holds it.
_UNHELD = {"owner": None, "lease_until": None, "entry_id": None, "dispatched_at": None}


class Held(NamedTuple):
    """A job under a lease: what proves the lease, and the queue entry to acknowledge at its end."""

    job_id: str
    token: int
    entry: Entry


@dataclass(frozen=True, slots=True)
class ClaimedJob:
    """All that a worker needs to compute a job."""

    held: Held
    endpoint: str
    model: str
    #: The request body, as JSON text in OpenAI's shape.
    body: str
    lane: Lane
    seed: int
    deadline_at: datetime | None
    created_at: datetime

    @property
    def id(self) -> str:
        return self.held.job_id


@dataclass(frozen=True, slots=True)
class WindowRecord:
    """How a window went: when it opened and closed, and why."""

    reason: str
    open_seconds: float


def claim(
    database: Database,
    entries: Sequence[Entry],
    *,
    worker_id: str,
    lease_seconds: float,
    window: WindowRecord,
) -> list[ClaimedJob]:
    """Take the leases of a window's jobs and return those that are ours now, in the window's order.

    What is not returned is finished, cancelled, overdue, or another entry's: its entry may go.
    """
    by_id = {entry.ticket.job_id: entry for entry in entries}
    window_id = new_id("window")

    def take(job: Job, at: datetime) -> Move | None:
        if job.status != JobStatus.QUEUED:
            return None
        if job.deadline_at is not None and job.deadline_at <= at:
            return Move(JobStatus.EXPIRED, {"finished_at": at, "error_code": "deadline_exceeded"})
        return Move(
            JobStatus.RUNNING,
            {
                "attempt": job.attempt + 1,
                "token": job.token + 1,
                "owner": worker_id,
                "entry_id": by_id[job.id].entry_id,
                "lease_until": at + timedelta(seconds=lease_seconds),
                "started_at": at,
                "window_id": window_id,
            },
        )

    with database.transaction() as session:
        moved = move_jobs(session, by_id, take)
        jobs = {job.id: job for job in moved if job.status == JobStatus.RUNNING}
        rows = session.execute(select(JobRequest.job_id, JobRequest.body).where(JobRequest.job_id.in_(jobs)))
        texts = {job_id: body for job_id, body in rows}  # noqa: C416 (rows are not tuples to mypy)
        if jobs:
            closed_at = now(session)
            session.add(
                Window(
                    id=window_id,
                    worker_id=worker_id,
                    reason=window.reason,
                    num_jobs=len(jobs),
                    num_tokens=sum(job.cost_tokens for job in jobs.values()),
                    opened_at=closed_at - timedelta(seconds=window.open_seconds),
                    closed_at=closed_at,
                )
            )
    return [_claimed(jobs[job_id], entry, texts[job_id]) for job_id, entry in by_id.items() if job_id in jobs]


def renew(database: Database, held: Sequence[Held], *, lease_seconds: float) -> set[str]:
    """Prolong these leases and return the ids of the jobs whose lease is no longer ours.

    A job that ended under this very lease is neither prolonged nor lost.
    """
    tokens = {lease.job_id: lease.token for lease in held}
    if not tokens:
        return set()
    with database.transaction() as session:
        rows = session.execute(
            select(Job.id, Job.token, Job.status).where(Job.id.in_(tokens)).order_by(Job.id).with_for_update()
        ).all()
        ours = {job_id: status for job_id, token, status in rows if tokens[job_id] == token}
        running = [job_id for job_id, status in ours.items() if status == JobStatus.RUNNING]
        if running:
            session.execute(
                update(Job)
                .where(Job.id.in_(running))
                .values(lease_until=now(session) + timedelta(seconds=lease_seconds)),
                execution_options={"synchronize_session": False},
            )
    return {job_id for job_id in tokens if ours.get(job_id) not in {JobStatus.RUNNING, *_ENDED_BY_WORKER}}


def give_back(database: Database, held: Sequence[Held], *, after_crash: bool) -> None:
    """Return jobs to the queue. Unless something crashed, it is as if they had not been claimed.

    A job whose attempts are used up fails instead.
    """
    tokens = {lease.job_id: lease.token for lease in held}

    def put_back(job: Job, at: datetime) -> Move | None:
        if job.status != JobStatus.RUNNING or job.token != tokens[job.id]:
            return None
        if after_crash:
            return _try_again(job, at)
        return Move(JobStatus.QUEUED, {**_UNHELD, "attempt": job.attempt - 1})

    with database.transaction() as session:
        _keep_errors(session, move_jobs(session, tokens, put_back))


def rescue(database: Database) -> list[str]:
    """Put running jobs whose lease has run out back into the queue and return their ids.

    A job whose attempts are used up fails instead.
    """

    def put_back(job: Job, at: datetime) -> Move | None:
        if job.status != JobStatus.RUNNING or job.lease_until is None or job.lease_until >= at:
            return None
        return _try_again(job, at)

    with database.transaction() as session:
        overdue = session.scalars(
            select(Job.id)
            .where(Job.status == JobStatus.RUNNING, Job.lease_until < now(session))
            .limit(_CHUNK)
        ).all()
        moved = move_jobs(session, overdue, put_back)
        _keep_errors(session, moved)
        return [job.id for job in moved]


def release_entries(database: Database, entries: Sequence[Entry]) -> None:
    """Let the dispatcher publish anew what was delivered to a consumer that is gone.

    Only queued jobs are concerned: one that was claimed is rescued when its lease runs out. After this
    the entries themselves may be acknowledged.
    """
    with database.transaction() as session:
        session.execute(
            update(Job)
            .where(Job.id.in_({entry.ticket.job_id for entry in entries}), Job.status == JobStatus.QUEUED)
            .values(dispatched_at=None),
            execution_options={"synchronize_session": False},
        )


def _try_again(job: Job, at: datetime) -> Move:
    if job.attempt < MAX_ATTEMPTS:
        return Move(JobStatus.QUEUED, _UNHELD)
    return Move(JobStatus.FAILED, {"finished_at": at, "lease_until": None, "error_code": POISON})


def _keep_errors(session: Session, moved: Sequence[Job]) -> None:
    """Store why those of the moved jobs failed that did."""
    message = f"The worker crashed {MAX_ATTEMPTS} times while this request ran."
    error = JobError(POISON, message).text()
    failed = [{"job_id": job.id, "error": error} for job in moved if job.status == JobStatus.FAILED]
    if failed:
        session.execute(insert(JobResult), failed)


def _claimed(job: Job, entry: Entry, body: str) -> ClaimedJob:
    return ClaimedJob(
        held=Held(job.id, job.token, entry),
        endpoint=job.endpoint,
        model=job.model,
        body=body,
        lane=Lane(job.lane),
        seed=job.seed,
        deadline_at=job.deadline_at,
        created_at=job.created_at,
    )
