"""Upkeep: what has to happen again and again, whoever does it; every worker does, and background work too."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from models.backoff import CRASH_BACKOFF, Backoff
from models.consumer import Consumer
from models.database import Database
from models.dispatch import Dispatcher
from models.errors import ServiceUnavailable
from models.fleet import Fleet
from models.signals import Signals
from worker.job_care import JobCare
from worker.tolerance import Tolerance

_log = structlog.get_logger()


@dataclass(slots=True)
class Chore:
    """Something to do every so often, and when it is due next (monotonic seconds)."""

    every_seconds: float
    do: Callable[[], object]
    due_at: float = 0.0
    tolerance: Tolerance = field(default_factory=Tolerance)


class Upkeep:
    """Dispatches, reclaims, rescues, expires and reconciles until told to stop."""

    def __init__(
        self,
        *,
        database: Database,
        consumer: Consumer,
        dispatcher: Dispatcher,
        signals: Signals,
        lease_seconds: float,
        crash_backoff: Backoff = CRASH_BACKOFF,
    ) -> None:
        care = JobCare(
            database=database,
            consumer=consumer,
            dispatcher=dispatcher,
            fleet=Fleet(database),
            signals=signals,
            lease_seconds=lease_seconds,
            crash_backoff=crash_backoff,
        )
        self._chores = [
            Chore(1.0, care.reclaim),
            Chore(2.0, care.rescue),
            Chore(2.0, care.expire),
            Chore(1.0, dispatcher.reconcile),
            # Last, so that what the others set free is published at once.
            Chore(1.0, dispatcher.dispatch),
        ]

    def also(self, every_seconds: float, do: Callable[[], object]) -> None:
        """Add a chore of the caller's own."""
        self._chores.insert(0, Chore(every_seconds, do))

    def run(self, stopping: threading.Event) -> None:
        """Do what is due until told to stop."""
        while not stopping.wait(self._next_pause()):
            for chore in self._chores:
                if chore.due_at <= time.monotonic():
                    chore.due_at = time.monotonic() + chore.every_seconds
                    self._try(chore)

    def _next_pause(self) -> float:
        return max(0.0, min(chore.due_at for chore in self._chores) - time.monotonic())

    def _try(self, chore: Chore) -> None:
        try:
            chore.do()
            chore.tolerance.note_success()
        except ServiceUnavailable as error:
            _log.warning("upkeep_failed", error=error.message)
        except Exception as error:
            # One bad row shall not end a worker that can still compute.
            _log.exception("chore_failed")
            chore.due_at = time.monotonic() + chore.every_seconds + chore.tolerance.endure(error)
