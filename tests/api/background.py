"""Background work as the test moves it: everything that is to be done for batches and for the queue, now."""

from __future__ import annotations

from contextlib import suppress

from api.services import Services
from models.batch_assembly import assemble_chunk
from models.batch_retry import retry_chunk
from models.batch_split import BatchSplit
from models.batch_state import BatchStep
from models.batch_sweep import sweep_chunk
from models.batch_validation import BatchValidation
from models.batch_work import BatchWork, WorkLease, WorkLost
from models.dispatch import Dispatcher
from tests.api.worker import MODEL


class HandBackground:
    """Does what `headrace background` does, when it is told to."""

    def __init__(self, house: Services) -> None:
        self._files = house.files
        self._work = BatchWork(house.database)
        self._validation = BatchValidation(self._work, house.files, house.settings)
        self._split = BatchSplit(self._work, house.files, house.settings)
        self._dispatcher = Dispatcher(house.database, house.queue, model=MODEL, depth=100)

    def work(self) -> None:
        """Go on with every batch as far as it gets without a worker, and publish what waits."""
        while (lease := self._work.claim()) is not None:
            # Once its batch is over, there is nothing to hold any more.
            with suppress(WorkLost):
                while (step := self._work.next_step(lease)) is not None:
                    self._do(step, lease)
            self._work.release(lease)
        self._dispatcher.expire()
        self._dispatcher.dispatch()

    def _do(self, step: BatchStep, lease: WorkLease) -> None:
        match step:
            case BatchStep.VALIDATE:
                self._validation.validate(lease)
            case BatchStep.SPLIT:
                self._split.split_chunk(lease)
            case BatchStep.SWEEP:
                sweep_chunk(self._work, lease)
            case BatchStep.RETRY:
                retry_chunk(self._work, lease)
            case BatchStep.ASSEMBLE:
                assemble_chunk(self._work, lease, self._files)
