"""Suspects of a crash: taken in SQL, group by group, and never from the queue.

The queue mixes jobs by design, and an entry there would have to be read and put back until a worker is
free of everything else. Suspects are few and rare, and an index holds only them.
"""

from __future__ import annotations

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from models.database import Database, now
from models.failpoints import failpoint
from models.lease import ClaimedJob, Grant
from models.suspicion import choose_group
from models.tables.job import Job, JobStatus

#: Suspects looked at for one group.
_CHUNK = 256


def claim_suspects(database: Database, grant: Grant, *, model: str, max_jobs: int) -> list[ClaimedJob]:
    """Take the leases of the next group of suspects; empty when none is due.

    They may run only beside each other. Any number of workers may ask at once: no two get the same job.
    """
    with database.transaction() as session:
        rows = session.execute(
            select(Job.id, Job.isolation)
            .where(*_due(session, model))
            .order_by(Job.available_at, Job.id)
            .limit(_CHUNK)
            .with_for_update(skip_locked=True)
        ).all()
        group = choose_group([(row[0], row[1]) for row in rows], max_jobs=max_jobs)
        claimed = grant.take(
            session, dict.fromkeys(group), may_take=lambda job: job.isolation > 0 and not job.held
        )
        failpoint("claim_before_commit")
    failpoint("claim_after_commit")
    return claimed


def has_suspects(database: Database, *, model: str) -> bool:
    """Say whether a suspect is due; cheap, and locks nothing."""
    with database.reading() as session:
        return session.scalar(select(Job.id).where(*_due(session, model)).limit(1)) is not None


def _due(session: Session, model: str) -> tuple[ColumnElement[bool], ...]:
    """The conditions of `ix_jobs_suspects`, and that neither a crash nor their batch lets them pause."""
    return (
        Job.model == model,
        Job.status == JobStatus.QUEUED,
        Job.isolation > 0,
        Job.held == 0,
        Job.available_at <= now(session),
    )
