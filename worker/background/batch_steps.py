"""What background work does for a batch at each step."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog

from models.batch_assembly import assemble_chunk
from models.batch_retry import retry_chunk
from models.batch_split import BatchSplit
from models.batch_state import BatchStep
from models.batch_sweep import sweep_chunk
from models.batch_validation import BatchValidation
from models.batch_work import BatchWork, WorkLease
from models.errors import QueueUnavailable
from models.file_store import FileStore
from models.settings import Settings
from models.signals import Signal, Signals

_log = structlog.get_logger()


def batch_steps(
    work: BatchWork,
    files: FileStore,
    signals: Signals,
    settings: Settings,
    *,
    should_stop: Callable[[], bool],
) -> Mapping[BatchStep, Callable[[WorkLease], object]]:
    """Return the function of each step; it does a chunk, or, to validate, the whole file."""
    validation = BatchValidation(work, files, settings, should_stop=should_stop)

    def sweep(lease: WorkLease) -> None:
        cancelled = sweep_chunk(work, lease)
        if cancelled:
            _free_engines(signals, cancelled)

    return {
        BatchStep.VALIDATE: validation.validate,
        BatchStep.SPLIT: BatchSplit(work, files, settings).split_chunk,
        BatchStep.SWEEP: sweep,
        BatchStep.RETRY: lambda lease: retry_chunk(work, lease),
        BatchStep.ASSEMBLE: lambda lease: assemble_chunk(work, lease, files),
    }


def _free_engines(signals: Signals, job_ids: list[str]) -> None:
    try:
        signals.send(Signal.CANCEL, job_ids)
    except QueueUnavailable as error:
        # They run to their end, and their results are discarded.
        _log.warning("hint_lost", signal=Signal.CANCEL, num_jobs=len(job_ids), error=error.message)
