"""Work on batches: which of them has something to be done, and the lease of whoever does it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from sqlalchemy import ColumnElement, and_, or_, select, update
from sqlalchemy.orm import Session

from models.batch_state import BatchStep, next_step
from models.database import Database, now
from models.errors import DatabaseUnavailable, HeadraceError
from models.tables.batch_job import IS_OPEN, OPEN_STATUSES, BatchJob, BatchStatus

_log = structlog.get_logger()

#: How long a batch is kept by somebody who does not renew.
WORK_SECONDS = 30.0
#: How often a lease is renewed while a step takes its time, and for how long: a step that hangs loses it.
_RENEW_SECONDS = WORK_SECONDS / 3
_MAX_KEPT_SECONDS = 600.0


class WorkLost(HeadraceError):
    """Somebody else works on this batch by now, or it is over."""

    code = "work_lost"


@dataclass(frozen=True, slots=True)
class WorkLease:
    """The right to work on a batch, until it runs out and somebody else takes it."""

    batch_id: str
    project_id: str
    #: Grows with every claim: what was begun under an older one counts no more.
    token: int


class BatchWork:
    """The batches that have something to be done, for whoever does it. Any number may run at once.

    Every method raises DatabaseUnavailable.
    """

    def __init__(self, database: Database) -> None:
        self.database = database

    def claim(self) -> WorkLease | None:
        """Take the batch that has waited longest for the work that it has; None if there is none."""
        # Most looks find nothing: those take no lock, which SQLite has only one of.
        with self.database.reading() as session:
            if session.scalar(select(BatchJob.id).where(_has_work(now(session))).limit(1)) is None:
                return None
        with self.database.transaction() as session:
            at = now(session)
            batch = session.scalar(
                select(BatchJob)
                .where(_has_work(at))
                .order_by(BatchJob.worked_at.asc().nulls_first(), BatchJob.id)
                .limit(1)
                .with_for_update(skip_locked=True)
            )
            if batch is None:
                return None
            batch.work_token += 1
            batch.worked_at = at
            batch.work_until = at + timedelta(seconds=WORK_SECONDS)
            return WorkLease(batch.id, batch.project_id, batch.work_token)

    def locked(self, session: Session, lease: WorkLease) -> BatchJob:
        """Lock the batch's row for a transaction that works on it, and renew the lease.

        Jobs come before batches in the order of locks: lock those first. Raises WorkLost.
        """
        batch = session.scalar(
            select(BatchJob).where(BatchJob.id == lease.batch_id).with_for_update(),
            execution_options={"populate_existing": True},
        )
        if batch is None or not _is_held(batch, lease):
            raise WorkLost
        batch.work_until = now(session) + timedelta(seconds=WORK_SECONDS)
        return batch

    def next_step(self, lease: WorkLease) -> BatchStep | None:
        """Say what is to be done next for the batch; None where there is nothing. Raises WorkLost."""
        with self.database.reading() as session:
            batch = session.get(BatchJob, lease.batch_id)
            if batch is None or not _is_held(batch, lease):
                raise WorkLost
            return next_step(batch, now(session))

    @contextmanager
    def kept(self, lease: WorkLease, *, every_seconds: float = _RENEW_SECONDS) -> Iterator[None]:
        """Renew a lease meanwhile, in a thread of its own: storage may be slow, and one chunk take long."""
        over = threading.Event()
        thread = threading.Thread(
            target=self._renew_until, args=(lease, over, every_seconds), name="batch-lease", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def release(self, lease: WorkLease, *, pause_seconds: float | None = None) -> None:
        """Let others work on a batch, now or after a pause. One that somebody else has stays with them."""
        with self.database.transaction() as session:
            at = now(session)
            until = None if pause_seconds is None else at + timedelta(seconds=pause_seconds)
            session.execute(
                update(BatchJob)
                .where(BatchJob.id == lease.batch_id, BatchJob.work_token == lease.token)
                # The token goes on, so that nothing can be done under this lease any more.
                .values(work_token=BatchJob.work_token + 1, work_until=until, worked_at=at),
                execution_options={"synchronize_session": False},
            )

    def _renew_until(self, lease: WorkLease, over: threading.Event, every_seconds: float) -> None:
        give_up_at = time.monotonic() + _MAX_KEPT_SECONDS
        while not over.wait(every_seconds) and time.monotonic() < give_up_at:
            try:
                with self.database.transaction() as session:
                    self.locked(session, lease)
            except WorkLost:
                # The step finds out by itself.
                return
            except DatabaseUnavailable as error:
                _log.warning("batch_lease_not_renewed", batch_id=lease.batch_id, error=error.message)


def _is_held(batch: BatchJob, lease: WorkLease) -> bool:
    return batch.work_token == lease.token and batch.status in OPEN_STATUSES


def _has_work(at: datetime) -> ColumnElement[bool]:
    """The condition on which `next_step` names one, and nobody has the batch."""
    is_free = or_(BatchJob.work_until.is_(None), BatchJob.work_until <= at)
    may_split = or_(
        BatchJob.available_at.is_(None),
        BatchJob.available_at <= at,
        BatchJob.expires_at <= at,
        BatchJob.cancelling_at.is_not(None),
    )
    cursors = (BatchJob.sweep_line, BatchJob.retry_line, BatchJob.assembly_line)
    is_waiting = or_(
        BatchJob.status == BatchStatus.VALIDATING,
        and_(BatchJob.split_line.is_not(None), may_split),
        *(cursor.is_not(None) for cursor in cursors),
    )
    return and_(IS_OPEN, is_free, is_waiting)
