from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from models.fairness import deficit_round_robin

QUANTUM = 100

costs = st.lists(st.integers(1, 1000), max_size=30)
queues_of_costs = st.dictionaries(st.sampled_from("abcd"), costs, max_size=4)


def merge(queues: dict[str, list[int]], *, limit: int = 10_000, spent: dict[str, int] | None = None) -> str:
    """The names of the queues in the order in which they were served."""
    named = {name: [(name, cost) for cost in items] for name, items in queues.items()}
    merged = deficit_round_robin(
        named, cost=lambda item: item[1], spent=spent or {}, quantum=QUANTUM, limit=limit
    )
    return "".join(name for name, _ in merged)


def test_small_items_do_not_wait_for_many_large_ones() -> None:
    assert merge({"a": [100] * 5, "b": [50] * 4}) == "abbabbaaa"


def test_an_item_above_the_quantum_waits_for_its_share() -> None:
    assert merge({"a": [300, 300], "b": [100] * 6}) == "bbabbbab"


def test_a_queue_alone_is_served_whole() -> None:
    assert merge({"a": [1, 1000, 7]}) == "aaa"


def test_nothing_waits() -> None:
    assert merge({}) == merge({"a": []}) == ""


def test_who_has_spent_more_goes_later() -> None:
    assert merge({"a": [100] * 4, "b": [100] * 4}, spent={"a": 200}) == "bbababaa"


def test_an_enormous_item_is_reached_at_once() -> None:
    # One round at a time this would take 10^10 of them.
    assert merge({"a": [10**12], "b": [10**12]}) == "ab"


@given(queues=queues_of_costs, limit=st.integers(0, 50))
def test_nothing_is_lost_or_doubled_and_each_queue_keeps_its_order(
    queues: dict[str, list[int]], limit: int
) -> None:
    named = {name: [(name, number) for number in range(len(items))] for name, items in queues.items()}

    merged = deficit_round_robin(
        named, cost=lambda item: queues[item[0]][item[1]], spent={}, quantum=QUANTUM, limit=limit
    )

    assert len(merged) == min(limit, sum(map(len, queues.values())))
    for name in queues:
        numbers = [number for owner, number in merged if owner == name]
        assert all(later == earlier + 1 for earlier, later in pairwise([-1, *numbers]))


@given(first=st.lists(st.integers(1, 1000), min_size=1), second=st.lists(st.integers(1, 1000), min_size=1))
def test_while_both_wait_neither_is_far_ahead(first: list[int], second: list[int]) -> None:
    order = merge({"a": first, "b": second})

    served = {"a": 0, "b": 0}
    items = {"a": iter(first), "b": iter(second)}
    left = {"a": len(first), "b": len(second)}
    for name in order:
        served[name] += next(items[name])
        left[name] -= 1
        if not all(left.values()):
            break
        # The known bound of deficit round robin: a quantum and the largest item.
        assert abs(served["a"] - served["b"]) <= 2 * QUANTUM + 1000
