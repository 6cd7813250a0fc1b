"""Deficit round robin: fair shares by cost (Shreedhar and Varghese, SIGCOMM 1995)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")


def deficit_round_robin(
    queues: Mapping[str, Sequence[T]], *, cost: Callable[[T], int], quantum: int, limit: int
) -> list[T]:
    """Merge queues into one order of at most `limit` items, each queue served in its own order.

    In every round a queue may spend `quantum` more; what it cannot spend on its next item it keeps.
    So over time each gets the same cost through, however large or small its items are.
    """
    waiting = {name: deque(items) for name, items in queues.items() if items}
    deficits = dict.fromkeys(waiting, 0)
    merged: list[T] = []
    while waiting and len(merged) < limit:
        for name in list(waiting):
            deficits[name] += quantum
            items = waiting[name]
            while items and cost(items[0]) <= deficits[name] and len(merged) < limit:
                deficits[name] -= cost(items[0])
                merged.append(items.popleft())
            if not items:
                del waiting[name]
    return merged
