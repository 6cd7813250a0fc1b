"""How much the engine can take, told from the thread that owns it to the one that feeds it."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from engine.protocol import Room


class Admission:
    """The engine's room, less what is on its way there."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._pending: list[Room] = []
        self._changed = threading.Condition()

    def wait(self, timeout_seconds: float) -> Room | None:
        """Wait until there is a free seat and free cache, and return them; None when time is up."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._is_open, timeout_seconds):
                return None
            return self._free

    def reserve(self, needs: Sequence[Room]) -> None:
        """Book what each of these jobs needs, which are on their way to the engine."""
        with self._changed:
            self._pending += needs

    def settle(self, room: Room, arrived: Sequence[Room] = ()) -> None:
        """Take over the engine's own account; jobs that have arrived there are no longer on their way."""
        with self._changed:
            self._room = room
            for need in arrived:
                self._pending.remove(need)
            self._changed.notify_all()

    @property
    def _free(self) -> Room:
        seats = sum(need.seats for need in self._pending)
        cache_tokens = sum(need.cache_tokens for need in self._pending)
        return Room(self._room.seats - seats, self._room.cache_tokens - cache_tokens)

    @property
    def _is_open(self) -> bool:
        return self._free.seats > 0 and self._free.cache_tokens > 0
