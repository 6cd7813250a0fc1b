"""The states of a batch: what is to be done next, and when it is over. Pure rules, under its row lock."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from models.tables.batch_job import BatchJob, BatchStatus


class BatchStep(StrEnum):
    """What background work does for a batch, a chunk of lines at a time; in this order where several wait."""

    #: Read the whole file and find everything that is wrong with it.
    VALIDATE = "validate"
    #: Make jobs of its lines.
    SPLIT = "split"
    #: Bring its jobs into line with what it should be like: cancelled, held, in another lane.
    SWEEP = "sweep"
    #: Make new jobs of the lines that have ended without an answer.
    RETRY = "retry"
    #: Write its output and error files.
    ASSEMBLE = "assemble"


def next_step(batch: BatchJob, at: datetime) -> BatchStep | None:
    """Say what is to be done next for a batch; None where there is nothing, or nothing yet."""
    if batch.status == BatchStatus.VALIDATING:
        return BatchStep.VALIDATE
    if batch.split_line is not None and _may_begin(batch, at):
        return BatchStep.SPLIT
    if batch.sweep_line is not None:
        return BatchStep.SWEEP
    if batch.retry_line is not None:
        return BatchStep.RETRY
    return BatchStep.ASSEMBLE if batch.assembly_line is not None else None


def settle(batch: BatchJob, at: datetime) -> None:
    """Let a batch go on to its end once every line is a job and every job has ended.

    A list is over at once. Of a file the output has to be written first: it is `finalizing`, or stays
    `cancelling`, until `conclude`. Call it under the row lock after every change of counters or cursors.
    """
    if batch.status not in (BatchStatus.IN_PROGRESS, BatchStatus.CANCELLING):
        return
    waits = batch.split_line is not None or batch.sweep_line is not None or batch.retry_line is not None
    if waits or batch.num_finished < batch.total or batch.assembly_line is not None:
        return
    if batch.input_file_id is None:
        _end(batch, BatchStatus.CANCELLED if batch.cancelling_at is not None else BatchStatus.COMPLETED, at)
        return
    batch.finalizing_at = at
    batch.assembly_line = 0
    if batch.cancelling_at is None:
        batch.status = BatchStatus.FINALIZING


def conclude(batch: BatchJob, at: datetime) -> None:
    """End a batch whose files are written; expired if its window closed before any of its lines ended."""
    batch.assembly_line = None
    batch.output_version += 1
    if batch.cancelling_at is not None:
        _end(batch, BatchStatus.CANCELLED, at)
    else:
        _end(batch, BatchStatus.EXPIRED if batch.expired else BatchStatus.COMPLETED, at)


def reopen(batch: BatchJob) -> None:
    """Let a batch that is over go on, for lines that are tried again."""
    batch.status = BatchStatus.IN_PROGRESS
    for name in ("finalizing_at", "completed_at", "expired_at", "cancelling_at", "cancelled_at"):
        setattr(batch, name, None)


def _may_begin(batch: BatchJob, at: datetime) -> bool:
    """Whether lines become jobs: from its time on, or where it is over, so that each line has an end."""
    times = (batch.available_at, batch.expires_at)
    due = batch.available_at is None or any(time is not None and time <= at for time in times)
    return due or batch.cancelling_at is not None


def _end(batch: BatchJob, status: BatchStatus, at: datetime) -> None:
    batch.status = status
    setattr(batch, f"{status.value}_at", at)
