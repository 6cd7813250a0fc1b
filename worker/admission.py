"""How much the engine can take, told from the thread that owns it to the one that feeds it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

from engine.protocol import Room
from models.lease import Held
from models.tables.job import Lane
from worker.events import ReadyJob
from worker.priority import PRIORITIES, Rooms


class Opening(NamedTuple):
    """Lanes that the engine has room for, the most urgent first, and the room that each of them has."""

    lanes: tuple[Lane, ...]
    room: Room

    @property
    def is_for_all(self) -> bool:
        """Whether no lane is left out."""
        return len(self.lanes) == len(PRIORITIES)


class Admission:
    """The engine's room by lanes, less what is on its way there.

    A full engine has room for what is more urgent than the jobs that fill it: those keep their leases and
    wait in the engine. So there can be as many jobs of each lane as the engine has seats, and no more.
    """

    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms
        self._pending: dict[Held, tuple[int, Room]] = {}
        self._changed = threading.Condition()

    def wait(self, timeout_seconds: float, *, others_seconds: float = 0.0) -> Opening | None:
        """Wait until there is room for a lane; None when time is up.

        Where it is not for all of them, the others get `others_seconds` more to come along.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._opening is not None, timeout_seconds):
                return None
            self._changed.wait_for(lambda: self._is_open_for_all, others_seconds)
            return self._opening

    def reserve(self, job: ReadyJob) -> None:
        """Book what a job needs that is on its way to the engine."""
        with self._changed:
            self._pending[job.job.held] = (PRIORITIES[job.job.lane], job.need)

    def settle(self, rooms: Rooms, arrived: Sequence[ReadyJob] = ()) -> None:
        """Take over the engine's own account; jobs that have arrived there are no longer on their way."""
        with self._changed:
            self._rooms = rooms
            for job in arrived:
                del self._pending[job.job.held]
            self._changed.notify_all()

    @property
    def _opening(self) -> Opening | None:
        """The lanes down to the first one that has no room: less urgent ones have none either."""
        opening = None
        for lane in PRIORITIES:
            room = self._free(lane)
            if room.seats <= 0 or room.cache_tokens <= 0:
                break
            opening = Opening((*opening.lanes, lane) if opening else (lane,), room)
        return opening

    @property
    def _is_open_for_all(self) -> bool:
        return self._opening is not None and self._opening.is_for_all

    def _free(self, lane: Lane) -> Room:
        """The room of a lane; what is on its way and less urgent would yield to it."""
        seats, cache_tokens = self._rooms[lane]
        for priority, need in self._pending.values():
            if priority <= PRIORITIES[lane]:
                seats -= need.seats
                cache_tokens -= need.cache_tokens
        return Room(seats, cache_tokens)
