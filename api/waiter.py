"""Long-polls: requests that wait until a job has finished."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from models.signals import Listener, Signal

#: How often a waiting request looks into SQL by itself: a hint may be lost, or Redis away.
RECHECK_SECONDS = 1.0


class Waiter:
    """Wakes waiting requests as soon as a worker says that their job has finished.

    Its only thread starts with the first wait. No database connection is held while waiting.
    """

    def __init__(self, url: str, namespace: str, *, max_waiting: int) -> None:
        self._listener = Listener(url, namespace, Signal.DONE, self._wake)
        self._max_waiting = max_waiting
        self._lock = threading.Lock()
        self._listening = False
        self._released = threading.Event()
        self._waiting: dict[str, set[threading.Event]] = {}
        self._num_waiting = 0

    @property
    def num_waiting(self) -> int:
        """How many requests wait now."""
        return self._num_waiting

    def wait(self, job_id: str, *, seconds: float, is_finished: Callable[[], bool]) -> None:
        """Return when the job has finished, or `seconds` have passed, or the server is to stop.

        Each wait holds a thread of the server. When `max_waiting` of them wait already it returns
        at once, so that threads for other requests are left.
        """
        if seconds <= 0:
            return
        deadline = time.monotonic() + seconds
        with self._subscription(job_id) as finished:
            # First subscribed, then looked: a job that finishes in between has set the event.
            while finished is not None and not is_finished() and not self._released.is_set():
                left_seconds = deadline - time.monotonic()
                if left_seconds <= 0:
                    return
                finished.wait(min(left_seconds, RECHECK_SECONDS))
                finished.clear()

    def release(self) -> None:
        """End all waits now, and every later one at once."""
        self._released.set()
        with self._lock:
            events = [event for events in self._waiting.values() for event in events]
        for event in events:
            event.set()

    def close(self) -> None:
        """End all waits, and the thread."""
        self.release()
        with self._lock:
            was_listening, self._listening = self._listening, False
        if was_listening:
            self._listener.stop()

    @contextmanager
    def _subscription(self, job_id: str) -> Iterator[threading.Event | None]:
        event = threading.Event()
        with self._lock:
            if self._num_waiting >= self._max_waiting or self._released.is_set():
                event_or_none = None
            else:
                event_or_none = event
                self._num_waiting += 1
                self._waiting.setdefault(job_id, set()).add(event)
                self._start_listening()
        try:
            yield event_or_none
        finally:
            if event_or_none is not None:
                self._unsubscribe(job_id, event)

    def _unsubscribe(self, job_id: str, event: threading.Event) -> None:
        with self._lock:
            self._num_waiting -= 1
            events = self._waiting[job_id]
            events.discard(event)
            if not events:
                del self._waiting[job_id]

    def _start_listening(self) -> None:
        # Not at construction: a thread does not survive the server's fork.
        if not self._listening:
            self._listening = True
            self._listener.start()

    def _wake(self, job_ids: Sequence[str]) -> None:
        with self._lock:
            events = [event for job_id in job_ids for event in self._waiting.get(job_id, ())]
        for event in events:
            event.set()
