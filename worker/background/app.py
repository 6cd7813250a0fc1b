"""The Celery app: one task, which does a chore by its name, and the times at which beat sends it."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from celery import Celery, schedules

from models.settings import Settings
from worker.background.beat import Beat
from worker.background.broker import celery_settings
from worker.background.schedule import Chore, Schedule

#: The name of the only task; its argument is a chore's name.
CHORE_TASK = "headrace.chore"

#: A message that was not consumed for so long, or for a whole period, is dropped: others have come since.
_MIN_EXPIRY_SECONDS = 10.0


class _SteadyClock:
    """UTC that only goes forward: beat would send nothing for as long as the machine's clock was set back."""

    def __init__(self) -> None:
        self.began_at = datetime.now(UTC)
        self._began = time.monotonic()

    def now(self) -> datetime:
        return self.began_at + timedelta(seconds=time.monotonic() - self._began)


def make_app(settings: Settings, schedule: Schedule) -> Celery:
    """Return an app that does these chores, and sends itself and its like the messages to do so."""
    app = Celery("headrace", set_as_current=False)
    app.conf.update(celery_settings(settings.queue_url, settings.redis_namespace))
    clock = _SteadyClock()
    app.conf.beat_schedule = {chore.name: _entry(chore, clock) for chore in schedule}
    app.steps["worker"].add(Beat)

    @app.task(name=CHORE_TASK)
    def do_chore(name: str) -> None:
        schedule.run(name)

    return app


def _entry(chore: Chore, clock: _SteadyClock) -> dict[str, Any]:
    period = timedelta(seconds=chore.every_seconds)
    return {
        "task": CHORE_TASK,
        "args": (chore.name,),
        "schedule": schedules.schedule(period, nowfun=clock.now),
        # So that all are due as soon as the process is there.
        "last_run_at": clock.began_at - period,
        "options": {"expires": max(chore.every_seconds, _MIN_EXPIRY_SECONDS)},
    }
