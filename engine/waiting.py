"""Those who wait for a seat, in their order."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import islice

from engine.sequence import Sequence

#: How many of those who wait are looked at in one step.
_LOOK_AHEAD = 256


def _order(sequence: Sequence) -> tuple[int, int, int, int]:
    return sequence.order


class WaitingQueue:
    """Waiting sequences by priority, then arrival; whoever is sheltered comes first.

    Whoever comes back after giving up its blocks still has its arrival, and so its old place.
    """

    def __init__(self) -> None:
        self._sequences: list[Sequence] = []

    def __len__(self) -> int:
        return len(self._sequences)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._sequences)

    def add(self, sequence: Sequence) -> None:
        insort(self._sequences, sequence, key=_order)

    def remove(self, sequence: Sequence) -> None:
        """Forget one; harmless if it does not wait."""
        index = bisect_left(self._sequences, sequence.order, key=_order)
        if index < len(self._sequences) and self._sequences[index] is sequence:
            del self._sequences[index]

    def less_urgent(self, *, than: int) -> list[Sequence]:
        """The next ones of a later priority than this."""
        first = bisect_left(self._sequences, (1, than + 1, 0, 0), key=_order)
        return self._sequences[first : first + _LOOK_AHEAD]

    def candidates(self) -> list[Sequence]:
        """The next ones who could be seated; a token still being drawn must be known first."""
        return [each for each in islice(self._sequences, _LOOK_AHEAD) if not each.num_in_flight_tokens]
