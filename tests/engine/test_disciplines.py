"""The older ways to batch: a batch runs to its end before the next one starts."""

from __future__ import annotations

import pytest

from engine.protocol import Room
from tests.engine.paper_engine import CHUNK, PaperEngine, complete_alone


def batches_of(paper: PaperEngine) -> list[set[str]]:
    """The ids of each batch, which are known once all of them have ended."""
    batches: list[set[str]] = []
    running: set[str] = set()
    while paper.live:
        paper.step()
        now = {span.sequence.request.id for span in paper.plans[-1].spans}
        if not running & now:
            batches.append(now)
        running = batches[-1]
        running |= now
    return batches


def engine_with_room_for_eight(batching: str) -> PaperEngine:
    # Eight requests of 250 tokens.
    return PaperEngine(num_blocks=8 * 250 // 4, seats=8, batching=batching, budget=8 * CHUNK)


def test_window_takes_equal_prompts_together() -> None:
    paper = engine_with_room_for_eight("window")
    for index in range(3):
        paper.add([index] * 200, 20, id=f"short-{index}")

    assert batches_of(paper) == [{"short-0", "short-1", "short-2"}]


@pytest.mark.parametrize("long_at", [0, 1, 2])
def test_window_takes_a_long_prompt_apart(long_at: int) -> None:
    paper = engine_with_room_for_eight("window")
    lengths = [200, 200]
    lengths.insert(long_at, 1000)
    for index, length in enumerate(lengths):
        paper.add([index] * length, 20, id=f"{length}-{index}")

    batches = batches_of(paper)

    assert sorted(len(batch) for batch in batches) == [1, 2]
    assert {id.split("-")[0] for id in min(batches, key=len)} == {"1000"}


@pytest.mark.parametrize("batching", ["window", "static"])
def test_nobody_joins_a_batch_that_runs(batching: str) -> None:
    paper = PaperEngine(num_blocks=200, batching=batching)
    paper.add([1, 0, 1], 30, id="a")
    paper.add([1, 1, 1], 30, id="b")
    paper.step()
    assert paper.scheduler.room() == Room(0, 0)
    paper.add([0, 0, 0], 30, id="c")

    while len(paper.live) == 3:
        paper.step()

    assert [sequence.request.id for sequence in paper.scheduler.waiting] == ["c"]
    assert paper.scheduler.room() == Room(0, 0)
    paper.drain()
    assert paper.scheduler.room() == Room(4, 800)


@pytest.mark.parametrize("batching", ["window", "static", "continuous"])
@pytest.mark.parametrize("late", [False, True])
def test_every_discipline_says_the_same(batching: str, late: bool) -> None:
    paper = PaperEngine(num_blocks=120, batching=batching, late=late)
    for index in range(12):
        paper.add([index % 3, 1] * (3 + 7 * index), 10 + index)

    # The paper engine compares each completion with what it would be alone.
    paper.drain()

    assert len(paper.completions) == 12


def test_static_batch_is_computed_as_a_rectangle() -> None:
    paper = PaperEngine(num_blocks=300, batching="static", prefix_caching=False)
    prompts = [[0, 1] * 5, [1, 1] * 60, [1, 0, 0] * 10]
    requests = [paper.add(prompt, 12)[0].request for prompt in prompts]
    outputs = [len(complete_alone(request)) for request in requests]
    # The end of the text is drawn by a row too; the last token of the length is never fed back.
    rows = [min(length + 1, 12) - 1 for length in outputs]

    paper.drain()

    figures = paper.scheduler.figures()
    longest = max(map(len, prompts))
    assert figures.num_computed_tokens == 3 * longest + 3 * max(rows)
    useful = sum(map(len, prompts)) + sum(rows)
    assert figures.num_padding_tokens == figures.num_computed_tokens - useful
    assert len(set(rows)) > 1


def test_static_batch_decodes_only_after_all_its_prompts() -> None:
    paper = PaperEngine(num_blocks=300, batching="static", prefix_caching=False)
    for length in (4, 500, 60):
        paper.add([length % 3] * length, 5)

    kinds = []
    while paper.live:
        plan = paper.step()
        assert plan.num_tokens <= CHUNK + 4
        kinds.append(any(span.is_decode for span in plan.spans))

    assert kinds == sorted(kinds)


@pytest.mark.parametrize("batching", ["window", "continuous"])
def test_other_disciplines_compute_no_padding(batching: str) -> None:
    paper = PaperEngine(num_blocks=300, batching=batching, prefix_caching=False)
    for length in (4, 500, 60):
        paper.add([length % 3] * length, 5)

    paper.drain()

    assert paper.scheduler.figures().num_padding_tokens == 0
