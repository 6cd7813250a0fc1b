"""What the scheduler says could be added: for whom, and whether it is true."""

from __future__ import annotations

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from engine.protocol import Room
from tests.engine.paper_engine import PaperEngine


def full_of(priority: int, **given: object) -> PaperEngine:
    """Four seats and 800 tokens, with four requests of 60 tokens in them."""
    paper = PaperEngine(num_blocks=200, prefix_caching=False, endless=True, **given)  # type: ignore[arg-type]
    for index in range(4):
        paper.add([index] * 20, 40, priority=priority)
    paper.step()
    return paper


@pytest.mark.parametrize(("admission", "cache_tokens"), [("reserve", 800), ("optimistic", 1600)])
def test_seats_of_less_urgent_ones_are_free_for_the_urgent(admission: str, cache_tokens: int) -> None:
    paper = full_of(1, admission=admission)

    assert paper.scheduler.room(0) == Room(4, cache_tokens)
    assert paper.scheduler.room(1) == paper.scheduler.room(2) == Room(0, cache_tokens - 4 * 60)


def test_those_who_yielded_count_for_their_equals_only() -> None:
    paper = full_of(2)
    for index in range(3):
        paper.add([index + 5] * 8, 32, priority=0)
    paper.step()

    assert paper.scheduler.room(0) == Room(1, 800 - 3 * 40)
    assert paper.scheduler.room(1) == Room(1, 800 - 3 * 40)
    assert paper.scheduler.room(2) == Room(0, 800 - 3 * 40 - 4 * 60)


@pytest.mark.parametrize("batching", ["window", "static"])
def test_nobody_yields_in_a_batch(batching: str) -> None:
    paper = PaperEngine(num_blocks=200, batching=batching, endless=True)
    paper.add([1] * 20, 40, priority=2)

    before = paper.scheduler.room(0)
    paper.step()

    assert before == Room(3, 800 - 60)
    assert paper.scheduler.room(0) == Room(0, 0)


_REQUESTS = st.tuples(st.integers(0, 2), st.integers(1, 100), st.integers(60, 120))


@settings(max_examples=150, deadline=None)
@given(
    late=st.booleans(),
    caching=st.booleans(),
    before=st.lists(_REQUESTS, max_size=8),
    num_steps=st.integers(0, 12),
    priority=st.integers(0, 2),
    share=st.floats(0.1, 1),
)
# One that takes blocks from the last but one: what it frees went to the last.
@example(
    late=True,
    caching=False,
    before=[(0, 1, 60), (0, 35, 60), (2, 1, 60), (0, 1, 60), (0, 1, 60), (1, 1, 60)],
    num_steps=0,
    priority=0,
    share=1.0,
)
def test_what_there_is_room_for_starts_before_anybody_has_ended(
    late: bool,
    caching: bool,
    before: list[tuple[int, int, int]],
    num_steps: int,
    priority: int,
    share: float,
) -> None:
    paper = PaperEngine(num_blocks=120, seats=5, late=late, prefix_caching=caching, endless=True)
    for each, length, max_tokens in before:
        # None that only others' ends would give a place to.
        seats, cache_tokens = paper.scheduler.room(each)
        if seats and length + max_tokens <= cache_tokens:
            paper.add([0] * length, max_tokens, priority=each)
    for _ in range(num_steps):
        paper.step()
    rooms = [paper.scheduler.room(each) for each in range(3)]
    num_tokens = int(share * rooms[priority].cache_tokens)
    assume(rooms[priority].seats and num_tokens >= 2)

    alive = list(paper.live)
    (sequence,) = paper.add([0] * (num_tokens // 2), num_tokens - num_tokens // 2, priority=priority)
    paper.step_until(lambda: sequence.was_seated, max_steps=40)

    assert rooms == sorted(rooms, key=lambda room: -room.seats)
    assert rooms == sorted(rooms, key=lambda room: -room.cache_tokens)
    assert all(each in paper.live for each in alive)
