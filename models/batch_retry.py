"""Retry of a batch: the lines that have ended without an answer are asked once more, chunk by chunk."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import NamedTuple

from sqlalchemy import ColumnElement, exists, insert, or_, select
from sqlalchemy.orm import Session

from models.batch_change import lock_batch
from models.batch_state import conform, reopen, settle
from models.batch_work import BatchWork, WorkLease
from models.completion_window import read_window
from models.database import Database, now
from models.errors import BatchNotRetryable
from models.line_jobs import is_newest
from models.move import count_jobs, lock_jobs
from models.retry import RETRYABLE_STATUSES, successor
from models.strict_json import dump_json
from models.tables.batch_job import OPEN_STATUSES, BatchJob, BatchStatus
from models.tables.job import Job, JobRequest, JobStatus

#: Lines that are looked at for one transaction.
CHUNK = 1000


class _Page(NamedTuple):
    """Some lines of a batch, as they stood: the first, that of the next page if there is one, and who may."""

    first: int
    next: int | None
    job_ids: Sequence[str]


def retry_batch(
    database: Database,
    project_id: str,
    batch_id: str,
    *,
    statuses: Collection[JobStatus] | None = None,
    completion_window: str | None = None,
) -> None:
    """Let a batch that is over ask those lines once more that ended in these statuses, all without an answer.

    The lines that are answered stay so, and the files that were written stay as they are: the next ones are
    another version. A window that is given counts from now; without one, one that has passed begins anew.
    Raises BatchNotFound; BatchNotRetryable where nothing can be retried, or the batch is not over.
    """
    wanted = set(RETRYABLE_STATUSES if statuses is None else statuses).intersection(RETRYABLE_STATUSES)
    with database.transaction() as session:
        batch = lock_batch(session, project_id, batch_id)
        if batch.status in OPEN_STATUSES or batch.status == BatchStatus.FAILED:
            raise BatchNotRetryable(f"Cannot retry a batch with status '{batch.status}'.")
        if session.scalar(select(Job.id).where(*_may_be_retried(batch.id, wanted)).limit(1)) is None:
            named = " or ".join(sorted(wanted))
            raise BatchNotRetryable(f"No line of the batch that could be tried again is {named}.")
        at = now(session)
        if completion_window is not None:
            batch.completion_window = completion_window
            batch.expires_at = at + read_window(completion_window)
        reopen(batch, at)
        batch.retry_line = 0
        batch.retry_statuses = dump_json(sorted(wanted))


def retry_chunk(work: BatchWork, lease: WorkLease, *, chunk: int = CHUNK) -> None:
    """Make new jobs of the next lines that are to be asked once more; then the batch goes on.

    Raises WorkLost.
    """
    with work.database.reading() as session:
        page = _next_page(session, session.get_one(BatchJob, lease.batch_id), chunk)
    if page is None:
        return
    with work.database.transaction() as session:
        locked = lock_jobs(session, page.job_ids)
        batch = work.locked(session, lease)
        if batch.retry_line != page.first:
            return
        # Somebody may have retried one by itself since.
        retried = set(session.scalars(select(Job.retry_of).where(Job.retry_of.in_(page.job_ids))))
        _ask_again(session, batch, [job for job in locked if job.id not in retried])
        batch.retry_line = page.next
        if page.next is None:
            batch.retry_statuses = None
        settle(batch, now(session))


def _next_page(session: Session, batch: BatchJob, limit: int) -> _Page | None:
    if batch.retry_line is None:
        return None
    statuses = json.loads(batch.retry_statuses or "[]")
    from_here = (Job.batch_id == batch.id, Job.line >= batch.retry_line)
    lines = select(Job.line).where(*from_here).distinct().order_by(Job.line)
    beyond = session.scalar(lines.offset(limit).limit(1))
    chosen = select(Job.id).where(*from_here, *_may_be_retried(batch.id, statuses))
    if beyond is not None:
        chosen = chosen.where(Job.line < beyond)
    return _Page(batch.retry_line, beyond, session.scalars(chosen).all())


def _may_be_retried(batch_id: str, statuses: Collection[str]) -> tuple[ColumnElement[bool], ...]:
    # What was refused before it was tried, or whose request is lost, could only fail again.
    was_valid = or_(Job.status != JobStatus.FAILED, Job.started_at.is_not(None))
    has_request = exists().where(JobRequest.job_id == Job.id)
    return (Job.batch_id == batch_id, Job.status.in_(list(statuses)), is_newest(), was_valid, has_request)


def _ask_again(session: Session, batch: BatchJob, jobs: Sequence[Job]) -> None:
    """Add a successor to each of these jobs, and let their batch and their project count it."""
    if not jobs:
        return
    at = now(session)
    counts: dict[tuple[str, str, str], int] = {}
    successors = [successor(job, at) for job in jobs]
    for old, new in zip(jobs, successors, strict=True):
        conform(new, batch)
        batch.count(JobStatus(old.status), -1)
        batch.count(JobStatus.QUEUED, 1)
        key = (new.project_id, new.lane, new.status)
        counts[key] = counts.get(key, 0) + 1
    session.add_all(successors)
    session.flush()
    texts = select(Job.id, JobRequest.body, JobRequest.metadata_text, JobRequest.callback_url).join(
        JobRequest, JobRequest.job_id == Job.retry_of
    )
    session.execute(
        insert(JobRequest).from_select(
            ["job_id", "body", "metadata", "callback_url"],
            texts.where(Job.id.in_([job.id for job in successors])),
        )
    )
    count_jobs(session, counts)
