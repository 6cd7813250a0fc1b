"""Who has been overtaken often enough. Knows numbers only, no tensors."""

from __future__ import annotations

from collections.abc import Collection

from engine.sequence import Sequence
from engine.waiting import WaitingQueue

#: So many that are more urgent and came later may get a seat before one who waits.
MOST_OVERTAKINGS = 10
#: One of so many seats may be had by those who do not yield.
SEATS_PER_PLACE = 8


class Shelter:
    """Has a few places for those whom more urgent ones would keep from their end for ever.

    Whoever has one goes first and yields to nobody, until it ends. They have an eighth of the seats
    at most, and one at the least: the others are there for whoever is urgent.
    """

    def __init__(self, num_seats: int) -> None:
        self._num_places = max(1, num_seats // SEATS_PER_PLACE)
        self._members: set[Sequence] = set()

    def take_in(self, seated: Collection[Sequence], waiting: WaitingQueue) -> None:
        """Count who was overtaken by those seated in a step, and give places to whom it was too often."""
        overtaken = waiting.less_urgent(than=min(each.priority for each in seated))
        for sequence in overtaken:
            sequence.num_overtakings += sum(sequence.is_overtaken_by(each) for each in seated)
        due = [each for each in overtaken if each.num_overtakings >= MOST_OVERTAKINGS]
        due.sort(key=lambda each: each.arrival)
        new = due[: self._num_places - len(self._members)]
        for sequence in new:
            waiting.remove(sequence)
            sequence.take_shelter()
            waiting.add(sequence)
        self._members.update(new)

    def leave(self, sequence: Sequence) -> None:
        """A sequence has ended; harmless if it has no place."""
        self._members.discard(sequence)
