"""Outages: whether the database was away for long enough that living workers look like dead ones."""

from __future__ import annotations

import time
from collections.abc import Callable


class Outage:
    """Follows what one process sees of its database. May be used by several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failing_since: float | None = None
        self._last_seconds = 0.0
        self._over_since = 0.0

    def note_failure(self) -> None:
        """The database did not answer."""
        if self._failing_since is None:
            self._failing_since = self._clock()

    def note_success(self) -> None:
        """The database answered."""
        since = self._failing_since
        if since is not None:
            self._failing_since = None
            self._over_since = self._clock()
            self._last_seconds = self._over_since - since

    def is_just_over(self, lease_seconds: float) -> bool:
        """Say whether leases of this length may have run out in an outage, and may not be renewed yet.

        An outage shorter than half a lease has let none run out: they are renewed far more often.
        """
        return self._last_seconds > lease_seconds / 2 and self._clock() - self._over_since < lease_seconds
