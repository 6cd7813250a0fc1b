"""What a lane is to the engine: a priority, and the room that there is for it."""

from __future__ import annotations

from collections.abc import Mapping

from engine.protocol import Engine, Room
from models.tables.job import Lane

#: Most urgent first; the engine runs lower numbers first, and lets them take seats from higher ones.
PRIORITIES = {Lane.INTERACTIVE: 0, Lane.STANDARD: 1, Lane.BULK: 2}

#: What the engine could take of each lane, if it were given that lane alone.
Rooms = Mapping[Lane, Room]

#: No lane has any.
NO_ROOM: Rooms = dict.fromkeys(PRIORITIES, Room(0, 0))


def rooms_of(engine: Engine) -> Rooms:
    """Ask an engine for the room of every lane."""
    return {lane: engine.room(priority) for lane, priority in PRIORITIES.items()}
