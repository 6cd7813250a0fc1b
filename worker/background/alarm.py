"""The alarm: what an operator should look at is in the log, again and again, for as long as it lasts."""

from __future__ import annotations

import structlog

from models.queue import JobQueue
from models.watchdog import Watchdog

_log = structlog.get_logger()


class Alarm:
    """Logs an error for everything that is wrong with Redis, and for each model whose jobs are stuck."""

    def __init__(self, watchdog: Watchdog, queue: JobQueue) -> None:
        self._watchdog = watchdog
        self._queue = queue

    def look(self) -> None:
        """Look once. Raises DatabaseUnavailable."""
        for fault in self._queue.health().faults:
            _log.error("redis_unfit", fault=fault)
        for pulse in self._watchdog.look():
            if pulse.is_stuck:
                _log.error(
                    "jobs_stuck",
                    model=pulse.model,
                    num_workers=pulse.num_workers,
                    oldest_queued_age_seconds=round(pulse.oldest_queued_age_seconds),
                )
