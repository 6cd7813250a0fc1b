"""Sweep: what a batch should be like reaches its jobs, some hundreds at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from models.batch_state import conform, settle
from models.batch_work import BatchWork, WorkLease
from models.database import now
from models.line_jobs import UNFINISHED
from models.move import cancellation, count_jobs, lock_jobs, move_jobs
from models.tables.batch_job import BatchJob
from models.tables.job import FINAL_STATUSES, Job, JobStatus

#: Jobs that are changed by one transaction.
CHUNK = 1000


def sweep_chunk(work: BatchWork, lease: WorkLease, *, chunk: int = CHUNK) -> list[str]:
    """Make the next jobs that have not ended what their batch should be like.

    Returns the ids of the running ones that were cancelled, so that their workers can be told. Once all are
    swept, the batch goes on. Raises WorkLost.
    """
    with work.database.reading() as session:
        first = session.scalar(select(BatchJob.sweep_line).where(BatchJob.id == lease.batch_id))
        if first is None:
            return []
        lines = _unfinished(session, lease.batch_id, first, chunk)
    last = max(lines.values()) if len(lines) == chunk else None
    with work.database.transaction() as session:
        jobs = [job for job in lock_jobs(session, lines) if job.status not in FINAL_STATUSES]
        batch = work.locked(session, lease)
        if batch.sweep_line != first or not _unfinished_ids(session, batch.id, first, last) <= lines.keys():
            # Changed since, or one of its lines was retried: the next look sees both.
            return []
        running = _apply(session, jobs, batch)
        batch.sweep_line = last + 1 if last is not None else None
        settle(batch, now(session))
        return running


def _unfinished(session: Session, batch_id: str, first: int, limit: int) -> dict[str, int]:
    """The next jobs that have not ended, with their lines; a line has one at most."""
    rows = session.execute(
        select(Job.id, Job.line)
        .where(Job.batch_id == batch_id, Job.line >= first, UNFINISHED)
        .order_by(Job.line)
        .limit(limit)
    )
    return {job_id: line for job_id, line in rows if line is not None}


def _unfinished_ids(session: Session, batch_id: str, first: int, last: int | None) -> set[str]:
    """The jobs of a range of lines that have not ended; without a last line, up to the end."""
    statement = select(Job.id).where(Job.batch_id == batch_id, Job.line >= first, UNFINISHED)
    return set(session.scalars(statement if last is None else statement.where(Job.line <= last)))


def _apply(session: Session, jobs: Sequence[Job], batch: BatchJob) -> list[str]:
    """Change locked jobs, and return the running ones that were cancelled."""
    if batch.cancelling_at is None:
        _conform(session, jobs, batch)
        return []
    running = [job.id for job in jobs if job.status == JobStatus.RUNNING]
    move_jobs(session, [job.id for job in jobs], lambda _, at: cancellation(at))
    return running


def _conform(session: Session, jobs: Sequence[Job], batch: BatchJob) -> None:
    counts: Counter[tuple[str, str, str]] = Counter()
    for job in jobs:
        counts[job.project_id, job.lane, job.status] -= 1
        conform(job, batch)
        counts[job.project_id, job.lane, job.status] += 1
    session.flush()
    count_jobs(session, counts)
