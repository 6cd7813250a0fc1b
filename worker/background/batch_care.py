"""Batches from files: whatever is to be done next for one, step by step, then for the next."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

import structlog

from models.backoff import Backoff
from models.batch_state import BatchStep
from models.batch_validation import fail_unread
from models.batch_work import BatchWork, WorkLease, WorkLost
from models.errors import DatabaseUnavailable, Fault, ServiceUnavailable

_log = structlog.get_logger()

#: Threads of one process that work on batches at the same time.
NUM_THREADS = 2

#: How long a batch is worked on while others may wait, and how long one call goes on with all of them.
_TURN_SECONDS = 2.0
_CALL_SECONDS = 30.0

#: The pause after a failure, longest at the sixth in a row.
_BACKOFF = Backoff(2.0)
_MAX_DOUBLED = 6
#: A defect that comes again so often at validation fails the batch. Later there are jobs already, and each of
#: its lines is owed an end: then it is tried for ever.
_MAX_VALIDATIONS = 5
_UNREADABLE = Fault("internal_error", "The file could not be validated, through a defect of Headrace.")


class BatchCare:
    """Works on batches; a step is called again and again until the batch needs another one.

    Any number of processes may do the same at once.
    """

    def __init__(
        self,
        work: BatchWork,
        steps: Mapping[BatchStep, Callable[[WorkLease], object]],
        *,
        should_stop: Callable[[], bool] = lambda: False,
        turn_seconds: float = _TURN_SECONDS,
    ) -> None:
        self._work = work
        self._steps = steps
        self._should_stop = should_stop
        self._turn_seconds = turn_seconds
        self._places = threading.BoundedSemaphore(NUM_THREADS)
        #: Failures in a row, by batch.
        self._failures: dict[str, int] = {}

    def go_on(self) -> None:
        """Do what there is to be done, for half a minute at most but for the validation of a long file.

        What fails for one batch is tried again after a pause; the others go on. Raises DatabaseUnavailable.
        """
        # A call that takes long does not keep the next ones away, and they would take up all threads.
        if not self._places.acquire(blocking=False):
            return
        try:
            until = time.monotonic() + _CALL_SECONDS
            while time.monotonic() < until and not self._should_stop():
                lease = self._work.claim()
                if lease is None:
                    return
                self._take_turn(lease)
        finally:
            self._places.release()

    def _take_turn(self, lease: WorkLease) -> None:
        until = time.monotonic() + self._turn_seconds
        step: BatchStep | None = None
        pause_seconds: float | None = None
        try:
            with self._work.kept(lease):
                while (step := self._work.next_step(lease)) is not None:
                    self._steps[step](lease)
                    self._failures.pop(lease.batch_id, None)
                    if self._should_stop() or time.monotonic() >= until:
                        break
        except WorkLost:
            # It is over, or somebody else has it.
            _log.debug("batch_work_ended", batch_id=lease.batch_id)
        except DatabaseUnavailable:
            # The lease runs out.
            raise
        except ServiceUnavailable as error:
            pause_seconds = self._pause(lease)
            _log.warning("batch_step_waits", batch_id=lease.batch_id, step=step, error=error.message)
        except Exception:
            # A defect. It shall neither end the process nor keep the other batches waiting.
            pause_seconds = self._pause(lease)
            _log.exception("batch_step_failed", batch_id=lease.batch_id, step=step)
            self._give_up(lease, step)
        self._work.release(lease, pause_seconds=pause_seconds)

    def _pause(self, lease: WorkLease) -> float:
        failures = self._failures[lease.batch_id] = self._failures.get(lease.batch_id, 0) + 1
        return _BACKOFF.pause(min(failures, _MAX_DOUBLED)).total_seconds()

    def _give_up(self, lease: WorkLease, step: BatchStep | None) -> None:
        if step is BatchStep.VALIDATE and self._failures[lease.batch_id] >= _MAX_VALIDATIONS:
            del self._failures[lease.batch_id]
            with suppress(WorkLost):
                fail_unread(self._work, lease, _UNREADABLE)
