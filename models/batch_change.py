"""What a batch should be like, as its project says it: written into its row, and then brought to its jobs."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from models.batch_state import end
from models.database import Database, now
from models.errors import BatchAlreadyFinished, BatchNotFound
from models.tables.batch_job import BatchJob, BatchStatus
from models.tables.job import Lane

#: Batches that compute, or are about to.
_CHANGEABLE = (BatchStatus.VALIDATING, BatchStatus.IN_PROGRESS)


def cancel_batch(database: Database, project_id: str, batch_id: str) -> None:
    """Cancel a batch: what has ended stays as it is, and all else ends as cancelled, soon.

    One of which no line is a job yet is over at once. To cancel a batch again changes nothing. Raises
    BatchNotFound, and BatchAlreadyFinished where there is nothing left to cancel.
    """
    with database.transaction() as session:
        batch = lock_batch(session, project_id, batch_id)
        if batch.status in (BatchStatus.CANCELLING, BatchStatus.CANCELLED):
            return
        _require(batch, (*_CHANGEABLE, BatchStatus.FINALIZING), verb="cancel")
        batch.cancelling_at = at = now(session)
        if batch.status == BatchStatus.VALIDATING:
            end(batch, BatchStatus.CANCELLED, at)
            return
        batch.retry_line = batch.paused_at = None
        if batch.status == BatchStatus.IN_PROGRESS:
            _sweep(batch)
        batch.status = BatchStatus.CANCELLING


def pause_batch(database: Database, project_id: str, batch_id: str) -> None:
    """Hold what waits; what runs goes on to its end. Raises BatchNotFound, BatchAlreadyFinished."""
    with database.transaction() as session:
        batch = lock_batch(session, project_id, batch_id)
        _require(batch, _CHANGEABLE, verb="pause")
        if batch.paused_at is None:
            batch.paused_at = now(session)
            _sweep(batch)


def resume_batch(database: Database, project_id: str, batch_id: str) -> None:
    """Let a paused batch go on. Raises BatchNotFound, BatchAlreadyFinished."""
    with database.transaction() as session:
        batch = lock_batch(session, project_id, batch_id)
        _require(batch, _CHANGEABLE, verb="resume")
        if batch.paused_at is not None:
            batch.paused_at = None
            _sweep(batch)


def update_batch(
    database: Database,
    project_id: str,
    batch_id: str,
    *,
    lane: Lane | None = None,
    expires_at: datetime | None = None,
    completion_window: str | None = None,
) -> None:
    """Give a batch another lane, or another end with the window that says so; None leaves what there is.

    What runs goes on; if it reaches the end that it was begun with, and has more time now, it is begun anew.
    Raises BatchNotFound, BatchAlreadyFinished.
    """
    with database.transaction() as session:
        batch = lock_batch(session, project_id, batch_id)
        _require(batch, _CHANGEABLE, verb="change")
        before = (batch.lane, batch.expires_at)
        if lane is not None:
            batch.lane = lane
        if expires_at is not None:
            batch.expires_at = expires_at
            batch.completion_window = completion_window or batch.completion_window
        if (batch.lane, batch.expires_at) != before:
            _sweep(batch)


def lock_batch(session: Session, project_id: str, batch_id: str) -> BatchJob:
    """Lock and return a project's batch. Raises BatchNotFound."""
    batch = session.scalar(
        select(BatchJob)
        .where(BatchJob.id == batch_id, BatchJob.project_id == project_id)
        .with_for_update()
        .execution_options(populate_existing=True)
    )
    if batch is None:
        raise BatchNotFound
    return batch


def _require(batch: BatchJob, statuses: tuple[BatchStatus, ...], *, verb: str) -> None:
    if batch.status not in statuses:
        raise BatchAlreadyFinished(f"Cannot {verb} a batch with status '{batch.status}'.")


def _sweep(batch: BatchJob) -> None:
    # From the first line on, even where an earlier change has not reached the last one.
    if batch.status == BatchStatus.IN_PROGRESS:
        batch.sweep_line = 0
