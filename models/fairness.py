"""Deficit round robin: fair shares by cost (Shreedhar and Varghese, SIGCOMM 1995)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")


def deficit_round_robin(
    queues: Mapping[str, Sequence[T]],
    *,
    cost: Callable[[T], int],
    spent: Mapping[str, int],
    quantum: int,
    limit: int,
) -> list[T]:
    """Merge queues into one order of at most `limit` items, each queue served in its own order.

    In every round a queue may spend `quantum` more; what it cannot spend on its next item it keeps.
    So over time each gets the same cost through, however large or small its items are. A queue that has
    `spent` more than another lets that one go first, which keeps many short merges as fair as a long one.
    """
    waiting = {name: deque(items) for name, items in queues.items() if items}
    deficits = {name: -spent.get(name, 0) for name in waiting}
    merged: list[T] = []
    while waiting and len(merged) < limit:
        # Rounds in which nobody can afford its next item are taken in one step: a single item may cost
        # a million times the quantum.
        missing = min(cost(items[0]) - deficits[name] for name, items in waiting.items())
        rounds = max(1, -(-missing // quantum))
        for name in list(waiting):
            deficits[name] += rounds * quantum
            items = waiting[name]
            while items and cost(items[0]) <= deficits[name] and len(merged) < limit:
                deficits[name] -= cost(items[0])
                merged.append(items.popleft())
            if not items:
                del waiting[name]
    return merged
