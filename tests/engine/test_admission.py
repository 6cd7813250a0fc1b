"""Who gets a seat and blocks, who gives them up, and what that costs."""

from __future__ import annotations

import random

import pytest

from engine.seating import BARRIER_STEPS
from engine.sequence import Sequence
from tests.engine.paper_engine import PaperEngine

LETTERS = range(2, 12)


def ids_of(sequences: list[Sequence]) -> list[str]:
    return [sequence.request.id for sequence in sequences]


@pytest.mark.parametrize("late", [False, True])
def test_large_request_starts_although_small_ones_keep_coming(late: bool) -> None:
    """Small requests that keep coming starve a large one."""
    paper = PaperEngine(num_blocks=40, seats=8, late=late, prefix_caching=False, endless=True)
    for _ in range(8):
        paper.add([1, 1], 12)
    paper.step()
    (large,) = paper.add([2] * 100, 20)

    for step in range(BARRIER_STEPS + 30):
        paper.add([3, step % 7], 12)
        paper.step()
        if large in paper.scheduler.running:
            break

    assert large in paper.scheduler.running


def test_smaller_ones_may_pass_for_a_while() -> None:
    paper = PaperEngine(num_blocks=40, prefix_caching=False)
    paper.add([1] * 60, 40, id="first")
    paper.step()
    paper.add([2] * 100, 20, id="large")
    paper.add([3], 1, id="small")

    paper.step()

    assert ids_of(paper.scheduler.waiting) == ["large"]


@pytest.mark.parametrize("admission", ["reserve", "optimistic"])
@pytest.mark.parametrize("late", [False, True])
def test_urgent_request_takes_a_seat_from_the_latest_of_the_least_urgent(admission: str, late: bool) -> None:
    paper = PaperEngine(num_blocks=200, seats=3, late=late, admission=admission, endless=True)
    for id, priority in (("bulk-a", 2), ("bulk-b", 2), ("standard", 1)):
        paper.add([1, 0] * 8, 30, id=id, priority=priority)
        paper.step()

    paper.add([0] * 5, 5, id="urgent", priority=0)
    paper.step()

    assert ids_of(paper.scheduler.running) == ["bulk-a", "standard", "urgent"]
    assert ids_of(paper.scheduler.waiting) == ["bulk-b"]
    paper.drain()
    assert len(paper.completions) == 4


@pytest.mark.parametrize("admission", ["reserve", "optimistic"])
@pytest.mark.parametrize("late", [False, True])
def test_urgent_request_takes_blocks(admission: str, late: bool) -> None:
    paper = PaperEngine(
        num_blocks=30, seats=4, late=late, admission=admission, prefix_caching=False, endless=True
    )
    for id in ("bulk-a", "bulk-b"):
        paper.add([1, 0] * 22, 8, id=id, priority=2)
    paper.step()

    paper.add([0] * 50, 5, id="urgent", priority=0)
    paper.step()
    paper.step()

    assert ids_of(paper.scheduler.running) == ["bulk-a", "urgent"]
    paper.drain()
    assert len(paper.completions) == 3


def test_urgent_request_that_would_not_fit_anyway_costs_nobody_a_seat() -> None:
    paper = PaperEngine(num_blocks=30, seats=4, prefix_caching=False)
    paper.add([1] * 60, 4, id="urgent-a", priority=0)
    paper.add([1] * 20, 4, id="bulk", priority=2)
    paper.step()

    paper.add([2] * 80, 4, id="urgent-b", priority=0)
    paper.step()

    assert ids_of(paper.scheduler.running) == ["urgent-a", "bulk"]


@pytest.mark.parametrize("late", [False, True])
def test_the_longest_gives_up_its_blocks_and_never_the_oldest(late: bool) -> None:
    paper = PaperEngine(num_blocks=30, admission="optimistic", late=late, prefix_caching=False, endless=True)
    prompts = {"oldest": 36, "short": 5, "longest": 30, "middle": 12}
    for token, (id, length) in enumerate(prompts.items()):
        paper.add([token + 2] * length, 40, id=id)

    paper.step_until(lambda: paper.scheduler.figures().num_preemptions > 0)

    assert ids_of(paper.scheduler.waiting)[0] == "longest"
    assert "oldest" in ids_of(paper.scheduler.running)
    paper.drain()


def test_victim_is_seated_again_before_later_arrivals() -> None:
    """Whoever gave up its blocks finds itself at the end of the queue."""
    paper = PaperEngine(num_blocks=24, admission="optimistic", prefix_caching=False, endless=True)
    (first, *_), (second, *_) = paper.add([2] * 30, 40), paper.add([3] * 34, 40)
    paper.step()
    paper.step_until(lambda: second not in paper.scheduler.running)
    for letter in LETTERS:
        paper.add([letter] * 40, 4)

    while second not in paper.scheduler.running:
        assert ids_of(paper.scheduler.running) == [first.request.id]
        paper.step_until(lambda: first not in paper.live or second in paper.scheduler.running)
        paper.step()

    assert paper.scheduler.figures().num_preemptions == 1


@pytest.mark.parametrize("num_host_blocks", [0, 5, 100])
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("after", range(12))
def test_preemption_at_any_step_changes_no_token(num_host_blocks: int, late: bool, after: int) -> None:
    """A sequence that comes back has lost a token or says one twice."""
    paper = PaperEngine(num_blocks=100, seats=1, late=late, num_host_blocks=num_host_blocks, endless=True)
    (bulk,) = paper.add([0, 1, 1, 0, 1, 0] * 30, 30, priority=1)
    for _ in range(after):
        paper.step()
    was_alive = bulk in paper.live and bool(bulk.block_table)

    paper.add([1, 0, 1], 3, priority=0)
    paper.drain()

    # The paper engine has compared both with what they say alone.
    assert len(paper.completions) == 2
    assert paper.scheduler.figures().num_preemptions == was_alive


def test_host_memory_saves_computing_again() -> None:
    recomputed = {}
    for num_host_blocks in (0, 100):
        paper = PaperEngine(num_blocks=40, seats=1, num_host_blocks=num_host_blocks, endless=True)
        paper.add([0, 1, 1, 0] * 15, 30, priority=1)
        for _ in range(4):
            paper.step()
        # It leaves nothing of the other's blocks to be found.
        paper.add([1, 0, 1] * 45, 20, priority=0)
        paper.drain()
        recomputed[num_host_blocks] = paper.scheduler.figures().num_recomputed_tokens

    assert recomputed[0] > 30
    assert recomputed[100] == 0


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("prefix_caching", [False, True])
def test_short_memory_does_not_make_the_engine_recompute_all_the_time(
    late: bool, prefix_caching: bool
) -> None:
    """Sequences throw each other out and little gets done."""
    draw = random.Random(3)
    requests = [([draw.randrange(9) for _ in range(draw.randrange(20, 60))], 40) for _ in range(64)]
    # Sixteen seats' worth of what they may need, and four tenths of that.
    num_blocks = int(16 * 20 * 0.4)
    paper = PaperEngine(
        num_blocks=num_blocks,
        seats=16,
        late=late,
        admission="optimistic",
        prefix_caching=prefix_caching,
        endless=True,
    )
    for prompt, max_tokens in requests:
        paper.add(prompt, max_tokens)

    paper.drain(max_steps=2000)

    figures = paper.scheduler.figures()
    assert len(paper.completions) == len(requests)
    assert figures.num_preemptions > 0
    assert figures.num_recomputed_tokens / figures.num_computed_tokens < 0.35


def test_optimistic_admission_runs_more_at_once() -> None:
    most = {}
    for admission in ("reserve", "optimistic"):
        paper = PaperEngine(num_blocks=40, seats=16, admission=admission, prefix_caching=False, endless=True)
        for letter in LETTERS:
            paper.add([letter, 1, 0, 1], 60)
        paper.step()
        most[admission] = len(paper.scheduler.running)
        paper.drain()

    assert most["optimistic"] > 2 * most["reserve"]


def test_requests_that_share_a_prompt_wait_for_whoever_computes_it() -> None:
    paper = PaperEngine(num_blocks=200, seats=8)
    for token in LETTERS:
        paper.add([1] * 120 + [token] * 3, 2)

    paper.drain()

    figures = paper.scheduler.figures()
    assert figures.num_prefix_hit_tokens == 120 * (len(LETTERS) - 1)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("state", range(8))
def test_cancelling_everybody_leaves_nothing_behind(late: bool, state: int) -> None:
    """A cancelled request leaves blocks held or work waiting."""
    paper = PaperEngine(
        num_blocks=60, seats=2, late=late, admission="optimistic", num_host_blocks=30, budget=128 + 2
    )
    paper.add([0, 1] * 80, 30, priority=1, n=2)
    paper.add([1] * 40, 30, priority=1)
    for _ in range(state):
        paper.step()
    paper.add([0] * 9, 30, priority=0, n=3)
    for _ in range(state // 2):
        paper.step()

    for sequence in list(paper.live):
        paper.cancel(sequence)
        paper.check_books()
    paper.drain()

    assert not paper.scheduler.has_work()
    assert paper.blocks.num_free_blocks == 60
