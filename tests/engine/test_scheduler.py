"""What goes into a step, without a network."""

from __future__ import annotations

import pytest

from engine.plan import StepPlan
from engine.protocol import EngineError, Room
from tests.engine.paper_engine import CHUNK, PaperEngine


def spans_of(plan: StepPlan) -> list[tuple[str, int, int]]:
    return [(span.sequence.request.id, span.start, span.count) for span in plan.spans]


def steps_to_first_token(paper: PaperEngine, id: str) -> int:
    """Number of the step that drew the first token of a request."""
    return next(
        plan.step
        for plan in paper.plans
        if any(span.samples and span.sequence.request.id == id for span in plan.spans)
    )


def test_long_prompt_is_cut_on_the_grid_and_then_decoded() -> None:
    paper = PaperEngine(num_blocks=80)
    paper.add([1] * 300, 2, id="a")

    paper.drain()

    steps = [span for plan in paper.plans for span in spans_of(plan)]
    assert steps[:3] == [("a", 0, 128), ("a", 128, 128), ("a", 256, 44)]
    assert steps[3:] in ([("a", 300, 1)], [])


def test_chunk_after_a_found_prefix_ends_on_the_grid() -> None:
    paper = PaperEngine(num_blocks=200)
    paper.add([0] * 60, 1)
    paper.drain()
    paper.add([0] * 60 + [1] * 200, 1, id="b")

    paper.drain()

    assert [spans_of(plan)[0] for plan in paper.plans[1:4]] == [("b", 60, 68), ("b", 128, 128), ("b", 256, 4)]


@pytest.mark.parametrize("late", [False, True])
def test_decodes_advance_in_every_step_beside_a_long_prompt(late: bool) -> None:
    """A decode is starved while a long prompt is computed."""
    paper = PaperEngine(num_blocks=200, late=late)
    (short,) = paper.add([1, 0, 1, 1, 0, 1, 0, 0, 1], 9, id="short")
    paper.step()
    paper.add([0] * 400, 2, id="long")

    while short in paper.live:
        plan = paper.step()
        if short in paper.live and short.num_known_tokens != short.max_num_tokens:
            assert plan.spans[0].sequence is short
            assert plan.spans[0].is_decode


def test_budget_bounds_a_step_and_chunks_are_never_cut_to_fit() -> None:
    paper = PaperEngine(num_blocks=300, budget=2 * CHUNK + 4)
    for index, prompt in enumerate((500, 200, 90, 4)):
        paper.add([index] * prompt, 1)

    first, second = spans_of(paper.step()), spans_of(paper.step())

    assert first == [("1", 0, 128), ("2", 0, 90), ("3", 0, 4)]
    assert second == [("1", 128, 72), ("0", 0, 128)]


@pytest.mark.parametrize("long_first", [False, True])
def test_long_prompt_does_not_hold_up_short_ones(long_first: bool) -> None:
    prompts = {"long": [1] * 1000, "short-a": [2] * 200, "short-b": [3] * 200}
    order = ["long", "short-a", "short-b"] if long_first else ["short-a", "short-b", "long"]
    alone, together = (PaperEngine(num_blocks=400, budget=2 * CHUNK + 4) for _ in range(2))
    for id in ("short-a", "short-b"):
        alone.add(prompts[id], 1, id=id)
    for id in order:
        together.add(prompts[id], 1, id=id)

    alone.drain()
    together.drain()

    for id in ("short-a", "short-b"):
        assert steps_to_first_token(together, id) == steps_to_first_token(alone, id)


def test_short_prompts_without_end_do_not_starve_a_long_one() -> None:
    """A long prompt waits forever behind short ones that keep coming."""
    paper = PaperEngine(num_blocks=500, seats=8)
    (long,) = paper.add([1] * 1000, 1, id="long")

    for index in range(200):
        for part in range(3):
            paper.add([2 + (3 * index + part) % 50] * 100, 1)
        paper.step()
        if long not in paper.live:
            break

    assert long not in paper.live
    # Eight chunks, each after four steps of patience at the most.
    assert len(paper.plans) <= 8 * 5 + 1


def test_blocks_for_prompt_and_completion_are_booked_at_once() -> None:
    paper = PaperEngine(num_blocks=16, block_size=4)
    (sequence,) = paper.add([1] * 17, 16)

    paper.step()

    assert len(sequence.block_table) == 5
    assert paper.scheduler.room() == Room(seats=3, cache_tokens=16 * 4 - 36)


def test_priority_comes_before_arrival() -> None:
    paper = PaperEngine(seats=1)
    for priority in (3, 1, 2, 1):
        paper.add([1] * 4, 1, priority=priority)

    assert [sequence.request.id for sequence in paper.scheduler.waiting] == ["1", "3", "2", "0"]


def test_request_that_could_never_fit_is_refused_and_the_others_finish() -> None:
    """A request that fits the model but not the cache blocks the queue forever."""
    paper = PaperEngine(num_blocks=8)
    with pytest.raises(EngineError, match="never fit"):
        paper.add([1] * 30, 3)
    for index in range(5):
        paper.add([index], 8)

    paper.drain()

    assert len(paper.completions) == 5


@pytest.mark.parametrize("admission", ["reserve", "optimistic"])
def test_two_prompts_that_fill_the_cache_both_finish(admission: str) -> None:
    """Two half-computed prompts hold all blocks, and neither can go on."""
    paper = PaperEngine(num_blocks=100, admission=admission)
    for token in (0, 1):
        paper.add([token] * 230, 10)

    paper.drain()

    assert len(paper.completions) == 2


def test_stall_is_an_error_with_a_dump() -> None:
    """Sequences wait, nothing runs, and the engine spins in silence."""
    paper = PaperEngine(num_blocks=4)
    leaked = PaperEngine().add([1] * 8, 4)[0]
    paper.blocks.book(leaked)
    paper.add([1] * 4, 4, id="stuck")

    with pytest.raises(EngineError, match=r"stalled: 1 of 4 blocks free.*'stuck'"):
        paper.step()


def test_nothing_is_planned_past_the_last_token() -> None:
    """With a step planned ahead, a sequence at its length would be computed once more."""
    paper = PaperEngine(late=True)
    (sequence,) = paper.add([1, 0, 0], 2)

    paper.step()
    paper.step()
    empty = paper.step()

    assert empty.is_empty
    assert sequence not in paper.live


def test_too_small_a_budget_is_refused() -> None:
    with pytest.raises(EngineError, match="budget"):
        PaperEngine(seats=8, budget=CHUNK + 7)


def test_figures_tell_seats_and_unused_slots() -> None:
    paper = PaperEngine(num_blocks=40, seats=2, prefix_caching=False)
    for token in (0, 1, 2):
        paper.add([token] * 9, 8)

    paper.step()

    figures = paper.scheduler.figures()
    assert (figures.num_running, figures.num_waiting, figures.num_seats) == (2, 1, 2)
    assert (figures.backlog_occupied_seats, figures.backlog_available_seats) == (2, 2)
    assert figures.num_computed_tokens == 18
    # Nine tokens lie in three blocks of four.
    assert figures.blocks.num_unused_slots == 2 * 3
    assert figures.blocks.num_used_blocks == 6
