"""The order in which the jobs of one project and lane are dispatched."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from heapq import merge
from itertools import islice

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from models.tables.job import Job, Lane

#: A job without a deadline counts as due so long after it was accepted.
PATIENCE = {
    Lane.INTERACTIVE: timedelta(minutes=1),
    Lane.STANDARD: timedelta(hours=1),
    Lane.BULK: timedelta(hours=24),
}


def next_jobs(session: Session, waiting: ColumnElement[bool], *, lane: Lane, limit: int) -> list[Job]:
    """Lock and return the next of the jobs for which `waiting` holds, all of one project and lane.

    The earliest deadline goes first; of jobs with the same one, those that begin alike go side by side, by
    `prefix_key`, and then the oldest. A job without a deadline goes after all that are due before its
    `PATIENCE` is over, and before the others: so deadlines that never cease keep it waiting no longer.
    Rows that another dispatcher has locked are left to it.
    """
    streams = [_read(session, waiting & stream, limit) for stream in _STREAMS]
    # Read by the index, each stream is in its order already; only their heads are compared.
    return list(islice(merge(*streams, key=lambda job: _due_at(job, lane)), limit))


#: Each of these is one stretch of `ix_jobs_undispatched`, read from its beginning without sorting. In one
#: query they would be sorted whole, 50,000 lines of a batch a second: the databases disagree where NULLs go.
_STREAMS: tuple[ColumnElement[bool], ...] = (
    Job.deadline_at.is_not(None),
    Job.deadline_at.is_(None) & Job.prefix_key.is_(None),
    Job.deadline_at.is_(None) & Job.prefix_key.is_not(None),
)


def _read(session: Session, rows: ColumnElement[bool], limit: int) -> Iterator[Job]:
    return iter(
        session.scalars(
            select(Job)
            .where(rows)
            .order_by(Job.deadline_at, Job.prefix_key, Job.id)
            .limit(limit)
            .with_for_update(skip_locked=True)
        ).all()
    )


def _due_at(job: Job, lane: Lane) -> datetime:
    return job.deadline_at if job.deadline_at is not None else job.created_at + PATIENCE[lane]
