"""Twenty thousand requests through one engine, whose memory stays as it was."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.engine.completion import build_tiny_engine, drain, greedy_request

NUM_ROUNDS, ROUND = 10, 2000

_MOST_GROWTH_BYTES = 8 * 2**20


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("one_thread")
def test_memory_is_flat(tiny_model: Path, record_figure: Callable[[str], None]) -> None:
    """Something is kept of every request that ever was."""
    engine = build_tiny_engine(tiny_model)
    process = psutil.Process()
    blocks, resident_bytes = [], []

    for round_ in range(NUM_ROUNDS):
        for index in range(ROUND):
            prompt = [3 + round_, 3 + index % 300, 3 + index // 300]
            engine.add(greedy_request(f"{round_}-{index}", prompt, 1))
        drain(engine)
        gc.collect()
        blocks.append(sys.getallocatedblocks())
        resident_bytes.append(process.memory_info().rss)

    growth_bytes = max(resident_bytes[5:]) - max(resident_bytes[:5])
    record_figure(f"20,000 tiny requests: memory grew by {growth_bytes / 1e6:.1f} MB in the second half")
    # One object for each request would be sixteen thousand; torch keeps a hundred or so of a round.
    assert max(blocks[2:]) - blocks[1] < ROUND
    assert growth_bytes < _MOST_GROWTH_BYTES
