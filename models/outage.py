"""Outages: whether the database was away for long enough that living workers look like dead ones."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: What is shorter is none: nobody has leases as short.
_SHORTEST_SECONDS = 0.1


class Outage:
    """Follows what one process sees of its database. May be used by several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failing_since: float | None = None
        #: When each ended, and how many seconds it took; each is shorter than all before it.
        self._past: list[tuple[float, float]] = []
        self._lock = threading.Lock()

    def note_start(self) -> None:
        """Whether the database was there until now, this process cannot know."""
        self._remember(self._clock(), math.inf)

    def note_failure(self) -> None:
        """The database did not answer."""
        if self._failing_since is None:
            self._failing_since = self._clock()

    def note_success(self) -> None:
        """The database answered."""
        since = self._failing_since
        if since is not None:
            self._failing_since = None
            self._end(since)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Wait for a lock that heartbeats need as well: for them a long wait is as good as an outage."""
        since = self._clock()
        try:
            yield
        finally:
            self._end(since)

    def is_near(self, lease_seconds: float) -> bool:
        """Say whether leases of this length may have run out in an outage, and may not be renewed yet.

        An outage shorter than half a lease has let none run out: they are renewed far more often. Whoever is
        the first to reach the database again sees it as not yet over.
        """
        at, since = self._clock(), self._failing_since
        if since is not None and at - since > lease_seconds / 2:
            return True
        with self._lock:
            return any(
                seconds > lease_seconds / 2 and at - ended < lease_seconds for ended, seconds in self._past
            )

    def _end(self, since: float) -> None:
        at = self._clock()
        if at - since > _SHORTEST_SECONDS:
            self._remember(at, at - since)

    def _remember(self, ended: float, seconds: float) -> None:
        with self._lock:
            # Of two, the later and longer one alone can matter: so there are never many.
            while self._past and self._past[-1][1] <= seconds:
                self._past.pop()
            self._past.append((ended, seconds))
