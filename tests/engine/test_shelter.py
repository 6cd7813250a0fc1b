"""Urgent requests that never cease: they get what they need, and the others get to their end."""

from __future__ import annotations

import pytest

from engine.sequence import Sequence
from engine.shelter import MOST_OVERTAKINGS, SEATS_PER_PLACE
from tests.engine.paper_engine import PaperEngine


class Rush:
    """An engine of which every step finds more urgent requests than it has seats."""

    def __init__(self, paper: PaperEngine, *, seats: int, length: int = 6) -> None:
        self.paper = paper
        self._seats = seats
        self._length = length
        self._num_added = 0

    def step(self) -> None:
        urgent = [each for each in self.paper.live if each.priority == 0]
        for _ in range(2 * self._seats - len(urgent)):
            # Each from a beginning of its own, and they do not end together.
            length = self._length + 5 * (self._num_added % 3)
            self.paper.add([self._num_added % 1000, 1], length, priority=0)
            self._num_added += 1
        self.paper.step()

    def until_ended(self, sequence: Sequence, *, max_steps: int) -> int:
        """How many steps it takes."""
        for num_steps in range(max_steps):
            if sequence not in self.paper.live:
                return num_steps
            self.step()
        raise AssertionError(f"{sequence!r} starves")


@pytest.mark.parametrize("admission", ["reserve", "optimistic"])
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("seats", [1, 2, 8])
@pytest.mark.parametrize("prompt", [3, 60])
def test_a_less_urgent_one_ends_although_urgent_ones_never_cease(
    admission: str, late: bool, seats: int, prompt: int
) -> None:
    # The cache holds what the urgent ones of all seats need; the large one needs most of it.
    paper = PaperEngine(
        num_blocks=24, seats=seats, late=late, admission=admission, prefix_caching=False, endless=True
    )
    rush = Rush(paper, seats=seats)
    for _ in range(4):
        rush.step()
    (bulk,) = paper.add([2] * prompt, 20, priority=2)

    rush.until_ended(bulk, max_steps=400)

    assert bulk.num_overtakings >= MOST_OVERTAKINGS
    assert len(paper.completions[bulk.request.id, 0]) == 20


def test_one_that_was_running_ends_too() -> None:
    paper = PaperEngine(num_blocks=200, seats=4, prefix_caching=False, endless=True)
    bulk = [paper.add([2, seat], 40, priority=2)[0] for seat in range(4)]
    paper.step()
    rush = Rush(paper, seats=4)

    for each in bulk:
        rush.until_ended(each, max_steps=400)

    assert len(paper.completions) > 4


def test_neither_of_two_less_urgent_priorities_starves() -> None:
    paper = PaperEngine(num_blocks=200, seats=4, prefix_caching=False, endless=True)
    rush = Rush(paper, seats=4)
    (bulk,) = paper.add([2], 20, priority=2)
    for _ in range(300):
        if not any(each.priority == 1 and not each.was_seated for each in paper.live):
            paper.add([3], 20, priority=1)
        if bulk not in paper.live:
            break
        rush.step()

    assert bulk not in paper.live


def test_a_large_one_is_not_overtaken_by_small_ones_that_are_sheltered_too() -> None:
    seats = 3 * SEATS_PER_PLACE
    paper = PaperEngine(num_blocks=100, seats=seats, prefix_caching=False, endless=True)
    rush = Rush(paper, seats=seats)
    large: Sequence | None = None

    for step in range(600):
        if step == 100:
            # Small ones have been sheltered by now.
            (large,) = paper.add([2] * 300, 20, priority=2)
        while sum(each.priority == 1 for each in paper.live) < 6:
            # They overlap, so that one of them is there at any time.
            paper.add([3], 40 + step % 7, priority=1)
        rush.step()

    assert large is not None
    assert large not in paper.live


@pytest.mark.parametrize("seats", [1, 7, 8, 16, 24])
def test_only_a_few_seats_are_kept_from_the_urgent(seats: int) -> None:
    paper = PaperEngine(num_blocks=2000, seats=seats, prefix_caching=False, endless=True)
    for seat in range(seats):
        paper.add([2, seat], 60, priority=2)
    paper.step()
    rush = Rush(paper, seats=seats)
    most = 0

    for _ in range(100):
        rush.step()
        sheltered = [each for each in paper.live if each.is_sheltered]
        others = [each for each in paper.scheduler.running if each.priority == 2 and not each.is_sheltered]
        most = max(most, len(sheltered))
        # Urgent ones wait all the time: nobody else has a seat without being sheltered.
        assert not others

    assert most == max(1, seats // SEATS_PER_PLACE)


@pytest.mark.parametrize("late", [False, True])
def test_urgent_ones_get_blocks_while_a_sheltered_one_waits_for_more(late: bool) -> None:
    """Whoever waits for much of a full cache shuts the door for everybody."""
    paper = PaperEngine(num_blocks=60, seats=16, late=late, prefix_caching=False, endless=True)
    (first,) = paper.add([2] * 16, 104, priority=2)
    (large,) = paper.add([3] * 16, 144, priority=2)
    (second,) = paper.add([4] * 16, 104, priority=2)
    paper.step()
    # The cache is full; the large one needs more than either of the others could give.
    assert paper.scheduler.running == [first, second]
    urgent: list[Sequence] = []
    waited_sheltered = 0

    for step in range(60):
        if step % 2 == 0:
            urgent += paper.add([3, step], 4, priority=0)
        paper.step()
        waited_sheltered += any(each.is_sheltered for each in paper.scheduler.waiting)
        assert all(each.was_seated for each in urgent[: step // 2 - 1])

    assert large.is_sheltered
    assert waited_sheltered
    paper.drain()


def test_an_urgent_one_passes_a_sheltered_one_for_which_no_seat_is_free() -> None:
    paper = PaperEngine(num_blocks=200, seats=3, prefix_caching=False, endless=True)
    (first,) = paper.add([2], 60, priority=2)
    (second,) = paper.add([3], 60, priority=2)
    second.num_overtakings = MOST_OVERTAKINGS - 1
    urgent = [paper.add([4, number], 60, priority=0)[0] for number in range(2)]
    paper.step()
    assert paper.scheduler.running == [*urgent, first]
    assert second.is_sheltered

    urgent += paper.add([5], 60, priority=0)
    paper.step()

    assert paper.scheduler.running == urgent
    assert paper.scheduler.waiting == [second, first]


def test_a_sheltered_one_yields_to_nobody() -> None:
    paper = PaperEngine(num_blocks=200, seats=1, prefix_caching=False, endless=True)
    rush = Rush(paper, seats=1)
    (bulk,) = paper.add([2], 30, priority=2)
    while not bulk.is_sheltered:
        rush.step()
    paper.step_until(lambda: bulk in paper.scheduler.running)
    num_preemptions = paper.scheduler.figures().num_preemptions

    while bulk in paper.live:
        assert paper.scheduler.room(0).seats == 0
        rush.step()

    assert paper.scheduler.figures().num_preemptions == num_preemptions
