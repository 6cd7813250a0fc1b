"""How much the engine can take, told from the thread that owns it to the one that feeds it."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from engine.protocol import Room


class Admission:
    """The engine's room, less what is on its way there."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._pending: list[int] = []
        self._changed = threading.Condition()

    def wait(self, timeout_seconds: float) -> Room | None:
        """Wait until there is a free seat and free cache, and return them; None when time is up."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._is_open, timeout_seconds):
                return None
            return self._free

    def reserve(self, costs_tokens: Sequence[int]) -> None:
        """Book seats and cache for jobs that are on their way to the engine."""
        with self._changed:
            self._pending += costs_tokens

    def settle(self, room: Room, arrived_costs_tokens: Sequence[int] = ()) -> None:
        """Take over the engine's own account; jobs that have arrived there are no longer on their way."""
        with self._changed:
            self._room = room
            for cost in arrived_costs_tokens:
                self._pending.remove(cost)
            self._changed.notify_all()

    @property
    def _free(self) -> Room:
        return Room(self._room.seats - len(self._pending), self._room.cache_tokens - sum(self._pending))

    @property
    def _is_open(self) -> bool:
        return self._free.seats > 0 and self._free.cache_tokens > 0
