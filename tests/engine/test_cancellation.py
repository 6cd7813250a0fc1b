"""Cancelling at any step, in any state, leaves nothing of the request and changes no other."""

from __future__ import annotations

from typing import Any

import pytest

from engine.sequence import Sequence
from tests.engine.paper_engine import PaperEngine

NUM_STEPS = 26

STATES = {"waiting", "prefilling", "decoding", "preempted", "preempted to host memory", "shared"}


def busy_engine(**settings: Any) -> PaperEngine:
    """Two seats for eight sequences, of which urgent ones come while others run."""
    return PaperEngine(num_blocks=130, seats=2, num_host_blocks=20, endless=True, **settings)


def advance(paper: PaperEngine, num_steps: int) -> None:
    """From the start to a state that depends on the number of steps alone."""
    paper.add([0, 1] * 90, 9, id="bulk", priority=2)
    paper.add([0, 1, 1] * 10, 9, id="choices", priority=1, n=3)
    for step in range(num_steps):
        if step % 5 == 2 and step < 18:
            paper.add([1, 1, 0, step] * 9, 3, id=f"urgent-{step}", priority=0)
        paper.step()


def state_of(paper: PaperEngine, sequence: Sequence) -> str:
    if sequence in paper.scheduler.running:
        if any(sequence.block_table[0] in each.block_table for each in paper.live if each is not sequence):
            return "shared"
        return "prefilling" if sequence.num_completion_tokens == 0 else "decoding"
    if sequence.host_blocks:
        return "preempted to host memory"
    return "preempted" if sequence.was_seated else "waiting"


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("admission", ["reserve", "optimistic"])
def test_any_one_at_any_step(admission: str, late: bool) -> None:
    """A cancelled request leaves blocks held, or work that nobody waits for."""
    seen = set()

    for num_steps in range(NUM_STEPS):
        for place in range(9):
            paper = busy_engine(admission=admission, late=late)
            advance(paper, num_steps)
            if place >= len(paper.live):
                break
            cancelled = paper.live[place]
            seen.add(state_of(paper, cancelled))
            others = {(each.request.id, each.choice) for each in paper.live if each is not cancelled}
            paper.completions.clear()

            paper.cancel(cancelled)

            paper.check_books()
            assert not cancelled.block_table
            assert not cancelled.host_blocks
            # The paper engine compares what each of the others says with what it would say alone.
            paper.drain()
            assert set(paper.completions) == others
            assert paper.blocks.num_free_blocks == 130

    assert seen >= STATES - {"preempted"}
