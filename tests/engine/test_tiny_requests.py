"""Twenty thousand requests come and go, and nothing of them stays."""

from __future__ import annotations

import gc
import sys
from typing import Any

import pytest

from tests.engine.paper_engine import PaperEngine

NUM_ROUNDS, ROUND = 10, 2000


@pytest.mark.parametrize(
    "settings",
    [{}, {"admission": "optimistic", "late": True, "num_host_blocks": 8}],
    ids=["reserve", "optimistic"],
)
def test_books_keep_nothing_of_those_who_have_gone(settings: dict[str, Any]) -> None:
    """Something is kept of every request that ever was."""
    paper = PaperEngine(num_blocks=40, seats=8, endless=True, **settings)
    counts = []

    for round_ in range(NUM_ROUNDS):
        for index in range(ROUND):
            # Few enough prompts that the paper engine's own book of prefixes is full after one round.
            (sequence,) = paper.add([index % 7, index % 5, index % 3] * 2, 1 + index % 2)
            paper.step()
            if index % 11 == 0 and sequence in paper.live:
                paper.cancel(sequence)
        paper.drain()
        assert paper.scheduler.figures().num_steps > ROUND * round_
        paper.completions.clear()
        paper.plans.clear()
        gc.collect()
        counts.append(sys.getallocatedblocks())

    # One object for each request would be two thousand a round.
    assert max(counts[2:]) - counts[1] < ROUND / 4
