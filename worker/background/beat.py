"""Celery's beat as a thread of the consuming process, without a file of its own."""

from __future__ import annotations

from typing import Any

import structlog
from celery import bootsteps
from celery.beat import EmbeddedService, ScheduleEntry, Scheduler, SchedulingError

_log = structlog.get_logger()

#: How long the end of the process waits for the thread, which may be connecting to a Redis that is away.
_JOIN_SECONDS = 2.0


class Beat(bootsteps.StartStopStep):
    """Starts and stops beat with the consumer.

    Celery's own embedded beat is a forked process, which a parent that is killed leaves behind.
    """

    def __init__(self, parent: Any, **options: Any) -> None:
        super().__init__(parent, **options)
        self._thread: Any = None

    def start(self, parent: Any) -> None:
        self._thread = EmbeddedService(parent.app, thread=True, scheduler_cls=QuietScheduler)
        self._thread.start()

    def stop(self, parent: Any) -> None:
        if self._thread is not None:
            self._thread.service.stop()
            self._thread.join(_JOIN_SECONDS)


class QuietScheduler(Scheduler):
    """Sends what is due.

    It remembers nothing beyond the process: how long ago a chore was done is in SQL, and a message too many
    does no harm. A Redis that is away is one line in the log, not two stacks for each message.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        self._failing = False
        super().__init__(*args, **options)

    def apply_entry(self, entry: ScheduleEntry, producer: Any = None) -> None:
        try:
            self.apply_async(entry, producer=producer, advance=False)
            self._failing = False
        except SchedulingError as error:
            if not self._failing:
                _log.warning("chores_not_sent", error=str(error))
            self._failing = True
