"""Care for the jobs of one model that nobody else looks after: of dead workers, and past their deadline."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from models.backoff import CRASH_BACKOFF, Backoff
from models.consumer import Consumer
from models.database import Database
from models.dispatch import Dispatcher
from models.fleet import Fleet
from models.lease import release_entries
from models.rescue import rescue
from models.signals import Signal, Signals

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCare:
    """Chores that may be done at any time, in any number of places at once.

    Each raises DatabaseUnavailable or QueueUnavailable.
    """

    database: Database
    consumer: Consumer
    dispatcher: Dispatcher
    fleet: Fleet
    signals: Signals
    lease_seconds: float
    crash_backoff: Backoff = CRASH_BACKOFF

    def reclaim(self) -> None:
        """Drop entries that nobody works on; the jobs behind them are published anew."""
        others = self.consumer.others()
        gone = others.difference(worker.id for worker in self.fleet.alive()) if others else others
        entries = [*self.consumer.reclaim(idle_seconds=self.lease_seconds), *self.consumer.take_from(gone)]
        if entries:
            _log.warning("entries_reclaimed", num_entries=len(entries))
            release_entries(self.database, entries)
            self.consumer.acknowledge(entries)

    def dispatch(self) -> None:
        """Publish what waits, and first what `reclaim` sets free and whose entry never came."""
        self.reclaim()
        self.dispatcher.reconcile()
        self.dispatcher.dispatch()

    def rescue(self) -> None:
        """Take back jobs whose worker let its lease run out."""
        rescued = rescue(self.database, silent_seconds=self.lease_seconds, backoff=self.crash_backoff)
        if rescued:
            _log.warning("jobs_rescued", num_jobs=len(rescued))
            # Some of them may have failed as poison.
            self.signals.send(Signal.DONE, rescued)

    def expire(self) -> None:
        """End waiting jobs whose deadline has passed, and tell who waits for them."""
        expired = self.dispatcher.expire()
        if expired:
            self.signals.send(Signal.DONE, expired)
