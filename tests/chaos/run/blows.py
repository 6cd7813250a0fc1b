"""What was done to the installation, and whom it may have cost a lease."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from tests.chaos.run.history import Change
from tests.chaos.run.role import Role

#: Clocks of two processes on one machine, and a look that comes a little late.
_TOLERANCE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Excuse:
    """Why a worker may lose its leases, between two times in seconds since 1970; pid None: every worker."""

    what: str
    pid: int | None
    since: float
    until: float = math.inf

    def covers(self, change: Change) -> bool:
        """Whether a lease that was taken away is explained by this."""
        is_its = self.pid is None or self.pid == _pid_of(change.owner)
        return is_its and self.since - _TOLERANCE_SECONDS <= change.at <= self.until + _TOLERANCE_SECONDS


class Blows:
    """The list of all blows. May be used by many threads."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._began = time.time()
        self._lines: list[str] = []
        self._excuses: list[Excuse] = []
        self._lock = threading.Lock()

    def note(self, kind: str, target: str) -> None:
        """Write down a blow."""
        with self._lock:
            self.counts[kind] += 1
            self._lines.append(f"{time.time():.3f} (+{time.time() - self._began:.1f} s) {kind} {target}")

    def excuse(self, what: str, pid: int | None, *, since: float, until: float = math.inf) -> None:
        """Say that leases may be lost through this."""
        with self._lock:
            self._excuses.append(Excuse(what, pid, since, until))

    def excuses(self, workers: Iterable[Role]) -> list[Excuse]:
        """All excuses; the deaths that were seen, whoever caused them, are some."""
        deaths = [
            Excuse("death", life.pid, life.ended_at)
            for role in workers
            for life in role.lives
            if life.ended_at is not None
        ]
        with self._lock:
            return self._excuses + deaths

    def lines(self) -> list[str]:
        """The blows in their order, one a line."""
        with self._lock:
            return list(self._lines)


def _pid_of(owner: str | None) -> int | None:
    """The process of a worker's id, which is `host:pid:uuid`."""
    return int(owner.split(":")[-2]) if owner else None
