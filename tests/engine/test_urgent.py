"""An urgent request begins in the first step that is planned after it came, whatever fills the engine."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.plan import StepPlan
from engine.protocol import EngineRequest
from tests.engine.completion import GREEDY, build_tiny_engine
from tests.engine.paper_engine import CHUNK, PaperEngine

SEATS = 4
#: What an engine computes in a step by default.
BUDGET = 2 * CHUNK + SEATS


def is_in(plan: StepPlan, id: str) -> bool:
    return any(span.sequence.request.id == id for span in plan.spans)


#: Prompt and completion.
_BULK = st.tuples(st.sampled_from([3, 60, 128, 200, 256, 300, 700]), st.integers(1, 60))


@settings(max_examples=200, deadline=None)
@given(
    bulk=st.lists(_BULK, min_size=1, max_size=10),
    num_blocks=st.sampled_from([80, 190, 260, 1000]),
    num_steps=st.integers(0, 12),
    prompt=st.sampled_from([1, 50, 128, 129, 290]),
    optimistic=st.booleans(),
    caching=st.booleans(),
)
# Prompts of bulk are under way, and would take all that the step can hold.
@example([(256, 30)] * 4, 1000, 1, 50, False, False)
# It is long itself, and short ones of bulk wait.
@example([(200, 30)] * 6, 1000, 0, 290, False, False)
# A decode finds no block in the very step.
@example([(60, 8), (300, 5), (128, 6)], 80, 7, 1, True, True)
# The cache is full, and it begins like those that are computed now.
@example([(150, 10)] * 4, 80, 1, 128, True, True)
def test_its_prompt_is_in_the_first_step(
    bulk: list[tuple[int, int]], num_blocks: int, num_steps: int, prompt: int, optimistic: bool, caching: bool
) -> None:
    paper = PaperEngine(
        num_blocks=num_blocks,
        seats=SEATS,
        budget=BUDGET,
        admission="optimistic" if optimistic else "reserve",
        prefix_caching=caching,
        endless=True,
    )
    for length, max_tokens in bulk:
        if length + max_tokens <= paper.blocks.num_cache_tokens:
            paper.add([1] * length, max_tokens, priority=2)
    for _ in range(num_steps):
        paper.step()

    paper.add([1] * prompt, 5, id="urgent", priority=0)

    assert is_in(paper.step(), "urgent")
    paper.drain()


def test_steps_that_overlap_let_it_wait_for_blocks_that_one_under_way_still_uses() -> None:
    """With a free seat there is no such wait; with a full cache it is one step."""
    waits = {}
    for num_blocks in (52, 1000):
        paper = PaperEngine(
            num_blocks=num_blocks, seats=SEATS, budget=BUDGET, late=True, prefix_caching=False, endless=True
        )
        for _ in range(SEATS):
            paper.add([1] * 44, 8, priority=2)
        paper.step()
        paper.add([2] * 50, 5, id="urgent", priority=0)
        waits[num_blocks] = next(number for number in count() if is_in(paper.step(), "urgent"))

    assert waits == {52: 1, 1000: 0}


def test_prompts_of_bulk_that_have_begun_end_although_urgent_ones_fill_every_step() -> None:
    """Who is overtaken while it has a seat is in nobody's queue, where shelter is given."""
    paper = PaperEngine(num_blocks=4000, seats=16, budget=2 * CHUNK + 16, prefix_caching=False, endless=True)
    bulk = [paper.add([3, number] * 128, 5, priority=2)[0] for number in range(2)]
    paper.step()
    assert {each.num_computed_tokens for each in bulk} == {128}

    for number in range(40):
        # Two chunks' worth of urgent prompts come in every step.
        for part in range(2):
            paper.add([4, number, part] * 42, 1, priority=0)
        plan = paper.step()
        assert any(span.sequence.priority == 0 for span in plan.spans)

    assert not any(each in paper.live for each in bulk)


def test_its_first_token_comes_out_of_the_first_step(llama_folder: Path) -> None:
    """With real tensors: every seat and all of the cache are booked by bulk."""
    engine = build_tiny_engine(llama_folder, max_num_seqs=4, kv_cache_bytes=2**19, max_model_len=512)
    bulk = [
        EngineRequest(f"bulk-{seat}", [3 + seat] * 142, 50, sampling=GREEDY, priority=2) for seat in range(6)
    ]
    for request in bulk:
        engine.add(request)
    while engine.figures().num_running < 4:
        engine.step()
    free = engine.limits.num_cache_tokens - 4 * 192
    assert free < 45

    engine.add(EngineRequest("urgent", [9] * 40, 5, sampling=GREEDY, priority=0))
    outputs = engine.step()

    assert [len(output.token_ids) for output in outputs if output.id == "urgent"] == [1]
    assert engine.figures().num_preemptions == 1
