"""When a window closes. Pure functions: they are told the time and keep no clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from models.tables.job import Lane

#: The order in which lanes are served while all of them have work: of ten jobs six, three and one.
LANE_TURNS = (
    Lane.INTERACTIVE,
    Lane.STANDARD,
    Lane.INTERACTIVE,
    Lane.INTERACTIVE,
    Lane.BULK,
    Lane.INTERACTIVE,
    Lane.STANDARD,
    Lane.INTERACTIVE,
    Lane.INTERACTIVE,
    Lane.STANDARD,
)


class CloseReason(StrEnum):
    """Why a window closed."""

    MAX_JOBS = "max_jobs"
    MAX_TOKENS = "max_tokens"
    MAX_WAIT = "max_wait"
    DEADLINE = "deadline"
    IDLE = "idle"
    SHUTDOWN = "shutdown"


@dataclass(frozen=True, slots=True)
class WindowLimits:
    """What closes a window."""

    max_jobs: int
    max_tokens: int
    max_wait_seconds: float
    #: Close as soon as no further job is waiting.
    close_when_idle: bool = False

    def within(self, *, seats: int, cache_tokens: int) -> WindowLimits:
        """Return these limits, cut to what the engine has room for."""
        return replace(
            self, max_jobs=min(self.max_jobs, seats), max_tokens=min(self.max_tokens, cache_tokens)
        )


class Member(NamedTuple):
    """What a window knows of a job: its cost, when it came in, and its deadline, in monotonic seconds."""

    cost_tokens: int
    taken_at: float
    deadline: float | None = None


def closing_reason(
    members: Sequence[Member], limits: WindowLimits, *, now: float, idle: bool, stopping: bool
) -> CloseReason | None:
    """Say why a window with these members closes now, or None if it stays open.

    The oldest member sets the clock: nobody waits longer than `max_wait_seconds`, however slowly the
    others arrive; what is there already when their time is up is still taken along, which takes none. An
    empty window stays open. `idle` says that nothing more was waiting just now.
    """
    if not members:
        return None
    if stopping:
        return CloseReason.SHUTDOWN
    if len(members) >= limits.max_jobs:
        return CloseReason.MAX_JOBS
    if total_tokens(members) >= limits.max_tokens:
        return CloseReason.MAX_TOKENS
    if any(member.deadline is not None and member.deadline <= now for member in members):
        return CloseReason.DEADLINE
    if not idle:
        return None
    if limits.close_when_idle:
        return CloseReason.IDLE
    return CloseReason.MAX_WAIT if wait_left(members, limits, now=now) <= 0 else None


def wait_left(members: Sequence[Member], limits: WindowLimits, *, now: float) -> float:
    """Return how many seconds the window may still wait for company."""
    closes_at = min(member.taken_at for member in members) + limits.max_wait_seconds
    deadlines = [member.deadline for member in members if member.deadline is not None]
    return min([closes_at, *deadlines]) - now


def num_wanted(members: Sequence[Member], limits: WindowLimits) -> int:
    """Return how many more jobs to ask for: free seats, fewer where tokens will run short.

    The cost of a job is known only when it has been taken, so the mean of those taken stands for the
    next; a window may go over `max_tokens` by one job of unusual size.
    """
    seats = limits.max_jobs - len(members)
    tokens = limits.max_tokens - total_tokens(members)
    if seats <= 0 or tokens <= 0 or not members:
        return min(1, max(0, seats))
    mean = max(1, total_tokens(members) // len(members))
    return max(1, min(seats, tokens // mean))


def lane_shares(count: int, *, turn: int) -> Counter[Lane]:
    """Split the next `count` jobs over the lanes, when `turn` jobs were served before.

    The turns go on from one window to the next, so that even windows of one job serve every lane.
    """
    return Counter(LANE_TURNS[(turn + served) % len(LANE_TURNS)] for served in range(count))


def total_tokens(members: Sequence[Member]) -> int:
    """Return the summed cost of the members."""
    return sum(member.cost_tokens for member in members)
