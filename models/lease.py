"""Leases: a worker's right to a job until a time, by the database's clock.

The order that keeps every job safe: claim (commit), compute, publish (commit), acknowledge. A token that
grows with each claim fences off whoever held the job before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import insert, select, update
from sqlalchemy.orm import Session

from models.consumer import Entry
from models.database import Database, now
from models.failpoints import failpoint
from models.ids import new_id
from models.incidents import count_incidents
from models.job_error import JobError
from models.move import Move, move_jobs
from models.tables.incident import Incident
from models.tables.job import Job, JobRequest, JobResult, JobStatus, Lane
from models.tables.worker import Window

#: How a job ends when its worker publishes; anything else ends a lease from outside.
_ENDED_BY_WORKER = frozenset({JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.EXPIRED})

#: Whoever finds a job like this under an entry holds a second entry for it.
_TAKEN = frozenset({JobStatus.RUNNING, JobStatus.SUCCEEDED, JobStatus.FAILED})

#: What a job looks like when nobody holds it.
UNHELD = {"owner": None, "lease_until": None, "entry_id": None, "dispatched_at": None}


class Held(NamedTuple):
    """A job under a lease: what proves the lease, and the queue entry to acknowledge at its end.

    A suspect has no entry: it was not taken from the queue.
    """

    job_id: str
    token: int
    entry: Entry | None


def entries_of(held: Iterable[Held]) -> list[Entry]:
    """Return the queue entries of these leases; a suspect has none."""
    return [lease.entry for lease in held if lease.entry is not None]


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
    #: In monotonic seconds of this process: what was left at the claim is told by the database's clock, so a
    #: wrong one here ends nobody early.
    deadline: float | None
    created_at: datetime
    batch_id: str | None = None

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

    What is not returned is finished, cancelled, overdue, held, a suspect, unreadable, or another entry's:
    its entry may go.
    """
    by_id = {entry.ticket.job_id: entry for entry in entries}
    grant = Grant(worker_id, lease_seconds, window)
    with database.transaction() as session:
        claimed = grant.take(session, by_id, may_take=lambda job: job.isolation == 0 and not job.held)
        models = {job.id: job.model for job in claimed}
        doubled = [entry.ticket.job_id for entry in entries if by_id[entry.ticket.job_id] is not entry]
        count_incidents(session, Incident.DUPLICATE_ENTRY, [models[one] for one in doubled if one in models])
        failpoint("claim_before_commit")
    failpoint("claim_after_commit")
    return claimed


@dataclass(frozen=True, slots=True)
class Grant:
    """What a worker asks for when it takes jobs together."""

    worker_id: str
    lease_seconds: float
    window: WindowRecord

    def take(
        self, session: Session, entries: Mapping[str, Entry | None], *, may_take: Callable[[Job], bool]
    ) -> list[ClaimedJob]:
        """Give those of these jobs that are queued and pass to the worker, in the order of `entries`.

        One that is overdue expires instead, and one that cannot be read fails alone. Entries of jobs that
        were taken before are counted.
        """
        window_id = new_id("window")
        taken_before: list[str] = []

        def decide(job: Job, at: datetime) -> Move | None:
            if job.status in _TAKEN and entries[job.id] is not None:
                taken_before.append(job.model)
            if job.status != JobStatus.QUEUED or not may_take(job):
                return None
            if job.deadline_at is not None and job.deadline_at <= at:
                return Move(JobStatus.EXPIRED, {"finished_at": at, "error_code": "deadline_exceeded"})
            return Move(JobStatus.RUNNING, self._lease(job, at, entries[job.id], window_id))

        moved = move_jobs(session, entries, decide)
        jobs = {job.id: job for job in moved if job.status == JobStatus.RUNNING}
        texts = _texts(session, jobs)
        unreadable = {job.id for job in jobs.values() if job.id not in texts or job.lane not in set(Lane)}
        _fail_unreadable(session, unreadable)
        taken = [jobs[job_id] for job_id in entries if job_id in jobs and job_id not in unreadable]
        if taken:
            session.add(self._window(window_id, taken, now(session)))
        count_incidents(session, Incident.DUPLICATE_ENTRY, taken_before)
        return [_claimed(job, entries[job.id], texts[job.id]) for job in taken]

    def _lease(self, job: Job, at: datetime, entry: Entry | None, window_id: str) -> dict[str, object]:
        return {
            "attempt": job.attempt + 1,
            "token": job.token + 1,
            "owner": self.worker_id,
            "entry_id": entry.entry_id if entry is not None else None,
            "lease_until": at + timedelta(seconds=self.lease_seconds),
            "started_at": at,
            "window_id": window_id,
        }

    def _window(self, window_id: str, jobs: Sequence[Job], closed_at: datetime) -> Window:
        return Window(
            id=window_id,
            worker_id=self.worker_id,
            model=jobs[0].model,
            reason=self.window.reason,
            num_jobs=len(jobs),
            num_tokens=sum(job.cost_tokens for job in jobs),
            opened_at=closed_at - timedelta(seconds=self.window.open_seconds),
            closed_at=closed_at,
        )


def renew(database: Database, held: Sequence[Held], *, lease_seconds: float) -> set[str]:
    """Prolong these leases and return the ids of the jobs whose lease is no longer ours.

    A job that ended under this very lease is neither prolonged nor lost. One whose row another transaction
    has locked is left for the next time: that transaction ends the lease, or leaves it as it is, and to wait
    for it would let all other leases run out.
    """
    tokens = {lease.job_id: lease.token for lease in held}
    if not tokens:
        return set()
    with database.transaction() as session:
        rows = session.execute(
            select(Job.id, Job.token, Job.status)
            .where(Job.id.in_(tokens))
            .order_by(Job.id)
            .with_for_update(skip_locked=True)
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
    kept = {JobStatus.RUNNING, *_ENDED_BY_WORKER}
    return {job_id for job_id, _, _ in rows if ours.get(job_id) not in kept}


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


def _texts(session: Session, job_ids: Iterable[str]) -> dict[str, str]:
    rows = session.execute(
        select(JobRequest.job_id, JobRequest.body).where(JobRequest.job_id.in_(list(job_ids)))
    )
    return {job_id: body for job_id, body in rows}  # noqa: C416 (rows are not tuples to mypy)


def _fail_unreadable(session: Session, job_ids: set[str]) -> None:
    """End jobs whose rows are broken: left alone, they would be claimed again and again."""
    if not job_ids:
        return
    error = JobError("internal_error", "The stored request is incomplete.")
    failed = move_jobs(
        session,
        job_ids,
        lambda _, at: Move(
            JobStatus.FAILED, {"finished_at": at, "lease_until": None, "error_code": error.code}
        ),
    )
    session.execute(insert(JobResult), [{"job_id": job.id, "error": error.text()} for job in failed])


def _claimed(job: Job, entry: Entry | None, body: str) -> ClaimedJob:
    return ClaimedJob(
        held=Held(job.id, job.token, entry),
        endpoint=job.endpoint,
        model=job.model,
        body=body,
        lane=Lane(job.lane),
        seed=job.seed,
        deadline=_monotonic_deadline(job),
        created_at=job.created_at,
        batch_id=job.batch_id,
    )


def _monotonic_deadline(job: Job) -> float | None:
    if job.deadline_at is None or job.started_at is None:
        return None
    return time.monotonic() + (job.deadline_at - job.started_at).total_seconds()
