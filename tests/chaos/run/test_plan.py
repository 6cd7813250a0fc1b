"""What the clients of a run ask for: by the seed alone, and everything in it."""

from __future__ import annotations

from collections import Counter
from itertools import islice

from tests.chaos.run.asked import Ask, Temper
from tests.chaos.run.plan import Plan


def calls(seed: int, client: int, count: int) -> list[Ask]:
    """The first calls of a client, which also decides what to do with each."""
    plan = Plan(seed, client, num_clients=3)
    found = []
    for ask in islice(plan.calls(), count):
        ask.tried_to_cancel = plan.cancels(ask)
        found.append(ask)
    return found


def test_the_same_seed_asks_the_same() -> None:
    assert calls(7, 1, 200) == calls(7, 1, 200)
    assert calls(7, 1, 200) != calls(8, 1, 200)


def test_no_two_clients_share_a_key_or_a_tag() -> None:
    asks = [ask for client in range(3) for ask in calls(7, client, 300)]

    assert len({ask.key for ask in asks}) == 900
    tags = Counter(line.tag for ask in asks for line in ask.lines)
    assert set(tags.values()) == {1}


def test_everything_comes_and_poison_comes_early_and_alone() -> None:
    asks = calls(7, 0, 1000)

    assert {line.temper for ask in asks for line in ask.lines} == set(Temper)
    poisonous = [ask for ask in asks if any(line.temper is Temper.ABORT for line in ask.lines)]
    assert poisonous[0] in asks[:10]
    assert {(len(ask.lines), ask.as_batch, ask.tried_to_cancel) for ask in poisonous} == {(1, False, False)}
    assert {ask.as_batch for ask in asks} == {True, False}
    assert any(ask.tried_to_cancel for ask in asks)
