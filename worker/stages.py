"""The threads of a worker: when one of them breaks, all of them end."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

import structlog

_log = structlog.get_logger()

#: How often the end of a stage is looked for.
_JOIN_SECONDS = 0.2


class Stages:
    """Starts the stages, and waits for the word to end them."""

    def __init__(self, stopping: threading.Event) -> None:
        self._stopping = stopping
        self._failed = threading.Event()
        # A signal handler may put into this kind of queue at any moment; setting an event there could wait
        # for a lock that the interrupted code holds.
        self._asked: queue.SimpleQueue[None] = queue.SimpleQueue()

    @property
    def failed(self) -> bool:
        """Whether a stage broke."""
        return self._failed.is_set()

    def start(self, name: str, run: Callable[[], None]) -> threading.Thread:
        """Run a stage in a thread of its own."""

        def guarded() -> None:
            try:
                run()
            except Exception:
                # A stage that ended alone would leave a worker that looks alive and does nothing.
                self.fail()
                _log.exception("stage_failed", stage=name)

        thread = threading.Thread(target=guarded, name=name, daemon=True)
        thread.start()
        return thread

    def ask_to_stop(self) -> None:
        """End the stages soon; may be called from a signal handler."""
        self._asked.put(None)

    def fail(self) -> None:
        """End the stages because something broke."""
        self._failed.set()
        self._asked.put(None)

    def wait(self) -> None:
        """Wait for the word, and pass it on to all stages."""
        self._asked.get()
        self._stopping.set()

    def join(self, thread: threading.Thread) -> None:
        """Wait for a stage to end; not when one has failed, since the others may wait for it for ever."""
        while thread.is_alive() and not self.failed:
            thread.join(_JOIN_SECONDS)
