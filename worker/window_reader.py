"""Takes windows of entries from the queue, for as long as the rules in `window.py` keep them open."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from models.consumer import MAX_BLOCK_SECONDS, Consumer, Entry
from models.errors import QueueUnavailable
from models.tables.job import Lane
from worker.deadline import monotonic_deadline
from worker.window import (
    CloseReason,
    Member,
    WindowLimits,
    closing_reason,
    lane_shares,
    num_wanted,
    wait_left,
)


@dataclass(frozen=True, slots=True)
class ClosedWindow:
    """Entries taken together, and why no more were."""

    entries: Sequence[Entry]
    reason: CloseReason
    open_seconds: float


class WindowReader:
    """Reads the lanes of one model, by turns."""

    def __init__(self, consumer: Consumer, limits: WindowLimits, stopping: threading.Event) -> None:
        self._consumer = consumer
        self._limits = limits
        self._stopping = stopping
        self._num_served = 0

    def take(
        self,
        *,
        seats: int,
        cache_tokens: int,
        lanes: Sequence[Lane] = tuple(Lane),
        wait: bool = True,
    ) -> ClosedWindow | None:
        """Wait for a first entry and gather more until the window closes; None when none came.

        Without `wait`, the first entry must be there already, and the window closes as soon as nothing more
        is. Entries of other `lanes` stay where they are.

        Raises QueueUnavailable only while the window is empty: what was taken is never dropped.
        """
        limits = self._limits.within(seats=seats, cache_tokens=cache_tokens)
        if not wait:
            limits = replace(limits, close_when_idle=True)
        entries = self._read_now(1, lanes)
        if wait and not entries:
            entries = self._read_later(MAX_BLOCK_SECONDS, lanes)
        members = [_member(entry) for entry in entries]
        idle = False
        while members:
            reason = closing_reason(
                members, limits, now=time.monotonic(), idle=idle, stopping=self._stopping.is_set()
            )
            if reason is not None:
                return ClosedWindow(entries, reason, time.monotonic() - members[0].taken_at)
            more = self._more(members, limits, lanes, idle=idle)
            idle = not more
            entries += more
            members += [_member(entry) for entry in more]
        return None

    def _more(
        self, members: Sequence[Member], limits: WindowLimits, lanes: Sequence[Lane], *, idle: bool
    ) -> list[Entry]:
        left = wait_left(members, limits, now=time.monotonic())
        try:
            if not idle:
                return self._read_now(num_wanted(members, limits), lanes)
            return self._read_later(left, lanes) if left > 0 else []
        except QueueUnavailable:
            # The window closes with what it has, when its time is up.
            self._stopping.wait(max(0.0, left))
            return []

    def _read_now(self, count: int, lanes: Sequence[Lane]) -> list[Entry]:
        """Take at most `count` waiting entries: each lane by its turns, then whoever has more."""
        shares = lane_shares(count, turn=self._num_served)
        taken = self._consumer.read({lane: shares[lane] for lane in lanes})
        for lane in lanes:
            if len(taken) < count:
                try:
                    taken += self._consumer.read({lane: count - len(taken)})
                except QueueUnavailable:
                    if not taken:
                        raise
                    break
        self._num_served += len(taken)
        return taken

    def _read_later(self, block_seconds: float, lanes: Sequence[Lane]) -> list[Entry]:
        taken = self._consumer.read(dict.fromkeys(lanes, 1), block_seconds=block_seconds)
        self._num_served += len(taken)
        return taken


def _member(entry: Entry) -> Member:
    ticket = entry.ticket
    return Member(ticket.cost_tokens, time.monotonic(), monotonic_deadline(ticket.deadline_at))
