"""The states of a batch: what is to be done next, what its jobs should be like, and when it is over.

Pure rules, to be followed under its row lock.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from models.completion_window import read_window
from models.tables.batch_job import BatchJob, BatchStatus
from models.tables.job import Job


class BatchStep(StrEnum):
    """What background work does for a batch, a chunk of lines at a time; in this order where several wait."""

    #: Read the whole file and find everything that is wrong with it.
    VALIDATE = "validate"
    #: Bring its jobs into line with what it should be like: cancelled, held, in another lane.
    SWEEP = "sweep"
    #: Make jobs of its lines. They are made as they should be, and wait for those that are there already.
    SPLIT = "split"
    #: Make new jobs of the lines that have ended without an answer.
    RETRY = "retry"
    #: Write its output and error files.
    ASSEMBLE = "assemble"


def next_step(batch: BatchJob, at: datetime) -> BatchStep | None:
    """Say what is to be done next for a batch; None where there is nothing, or nothing yet."""
    if batch.status == BatchStatus.VALIDATING:
        return BatchStep.VALIDATE
    if batch.sweep_line is not None:
        return BatchStep.SWEEP
    if batch.split_line is not None and _may_begin(batch, at):
        return BatchStep.SPLIT
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
        end(batch, BatchStatus.CANCELLED if batch.cancelling_at is not None else BatchStatus.COMPLETED, at)
        return
    batch.finalizing_at = at
    batch.assembly_line = 0
    if batch.cancelling_at is None:
        batch.status = BatchStatus.FINALIZING


def conclude(batch: BatchJob, at: datetime) -> None:
    """End a batch whose files are written; it is expired if its window closed before all lines had ended."""
    batch.assembly_line = None
    batch.output_version += 1
    if batch.cancelling_at is not None:
        end(batch, BatchStatus.CANCELLED, at)
    else:
        end(batch, BatchStatus.EXPIRED if batch.expired else BatchStatus.COMPLETED, at)


def end(batch: BatchJob, status: BatchStatus, at: datetime) -> None:
    """Let a batch be over, with a status that is final."""
    batch.status = status
    setattr(batch, f"{status.value}_at", at)
    # Whoever worked on it has nothing to do any more; a retry need not wait for them.
    batch.work_until = None


def reopen(batch: BatchJob, at: datetime) -> None:
    """Let a batch that is over go on, for lines that are tried again.

    It is as if newly begun, now: neither paused nor put off, and a window that has passed begins anew, for as
    long as it was.
    """
    batch.status = BatchStatus.IN_PROGRESS
    for name in ("finalizing", "completed", "expired", "cancelling", "cancelled", "paused", "available"):
        setattr(batch, f"{name}_at", None)
    if batch.expires_at is not None and batch.expires_at <= at:
        window = batch.completion_window
        batch.expires_at = at + read_window(window) if window is not None else None


def conform(job: Job, batch: BatchJob) -> None:
    """Make a job that has not ended what its batch should be like: held or not, its lane, its deadline.

    It is owed a new entry in Redis where the old one must not be used any more. The counters by lane are the
    caller's. A running job is changed as well, for the case that it comes back to the queue.
    """
    held = 0 if batch.paused_at is None else 1
    lane = batch.lane or job.lane
    if held > job.held or lane != job.lane:
        job.dispatched_at = None
    job.held, job.lane = held, lane
    if batch.input_file_id is not None or batch.expires_at is not None:
        # Requests of a list may have each a deadline of its own.
        job.deadline_at = batch.expires_at


def _may_begin(batch: BatchJob, at: datetime) -> bool:
    """Whether lines become jobs: from its time on, or where it is over, so that each line has an end."""
    times = (batch.available_at, batch.expires_at)
    due = batch.available_at is None or any(time is not None and time <= at for time in times)
    return due or batch.cancelling_at is not None
