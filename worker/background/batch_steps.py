"""The steps of batches, each with what it is done with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSteps:
    """Does a chunk of a step at a time. Each raises DatabaseUnavailable and WorkLost."""

    work: BatchWork
    files: FileStore
    settings: Settings
    signals: Signals

    def table(self, *, should_stop: Callable[[], bool]) -> Mapping[BatchStep, Callable[[WorkLease], None]]:
        """Return what is to be called for each step."""
        given = (self.work, self.files, self.settings)
        return {
            BatchStep.VALIDATE: BatchValidation(*given, should_stop=should_stop).validate,
            BatchStep.SWEEP: self._sweep,
            BatchStep.SPLIT: BatchSplit(*given).split_chunk,
            BatchStep.RETRY: lambda lease: retry_chunk(self.work, lease),
            BatchStep.ASSEMBLE: lambda lease: assemble_chunk(self.work, lease, self.files),
        }

    def _sweep(self, lease: WorkLease) -> None:
        cancelled = sweep_chunk(self.work, lease)
        if not cancelled:
            return
        try:
            self.signals.send(Signal.CANCEL, cancelled)
        except QueueUnavailable as error:
            # Their workers find out when they renew their leases.
            _log.warning("hint_lost", signal=Signal.CANCEL, job_ids=cancelled, error=error.message)
