"""The process of background work: consumes and sends until it is told to stop."""

from __future__ import annotations

import os
import signal
import socket
import uuid
from contextlib import ExitStack
from typing import Any

import structlog
from celery.worker import state

from models.settings import Settings
from worker.background.app import make_app
from worker.background.house import House

_log = structlog.get_logger()


def run_background(settings: Settings) -> int:
    """Do background work until SIGTERM or SIGINT, and return the exit code.

    Raises StartupError where it cannot start. A database or a Redis that goes away later is waited for.
    """
    name = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex}"
    with ExitStack() as stack:
        house = House(settings, name)
        stack.callback(house.close)
        app = make_app(settings, house.schedule())
        # For threads other than this one, which have no current app of their own.
        app.set_default()
        worker = app.WorkController(
            hostname=name,
            loglevel="WARNING",
            ready_callback=_say_ready,
            # All three are messages between workers, which ours have nothing to say in.
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _stop)
        worker.start()
        _log.info("background_stopped")
        return worker.exitcode or 0


def _say_ready(_: Any) -> None:
    _log.info("background_ready")


def _stop(number: int, _: Any) -> None:
    # Celery's own loops look at this: the consumer stops taking messages, and what runs is finished.
    state.should_stop = 0  # type: ignore[assignment]
