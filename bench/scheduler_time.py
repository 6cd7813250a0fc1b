"""What planning alone costs: the scheduler with sequences on paper, no tensors and no text."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

from engine.block_manager import BlockManager
from engine.config import PREFILL_CHUNK_TOKENS
from engine.protocol import EngineRequest
from engine.scheduler import Scheduler
from engine.sequence import Sequence

#: Sequences that decode together while planning is measured.
NUM_PLANNED_SEQUENCES = 256

_NUM_STEPS = 200
_BLOCK_TOKENS = 16
_PROMPT_TOKENS = 64
_ANY_TOKEN = 1


def measure_planning(num_sequences: int = NUM_PLANNED_SEQUENCES, *, num_steps: int = _NUM_STEPS) -> float:
    """Median seconds to plan and to commit a step of sequences that all decode, one token each."""
    sequences = [_sequence(index, most_steps=num_sequences + num_steps) for index in range(num_sequences)]
    scheduler = Scheduler(
        BlockManager(1 + sum(map(_count_blocks, sequences)), block_size=_BLOCK_TOKENS),
        max_num_seqs=num_sequences,
        token_budget=2 * PREFILL_CHUNK_TOKENS + num_sequences,
    )
    for sequence in sequences:
        scheduler.add(sequence)
    steps = _steps(scheduler)
    while not all(sequence.is_decoding for sequence in sequences):
        next(steps)
    return statistics.median(next(steps) for _ in range(num_steps))


def _steps(scheduler: Scheduler) -> Iterator[float]:
    """Steps as the engine does, with tokens from nowhere; gives the planning seconds of each step."""
    while True:
        started = time.perf_counter()
        plan = scheduler.schedule()
        scheduler.commit(plan)
        yield time.perf_counter() - started
        for span in plan.spans:
            if span.samples:
                span.sequence.append(_ANY_TOKEN)


def _sequence(index: int, *, most_steps: int) -> Sequence:
    """One that has nothing in common with the others and does not end before `most_steps` have passed."""
    request = EngineRequest(id=str(index), token_ids=[index] * _PROMPT_TOKENS, max_tokens=most_steps + 1)
    return Sequence(request, arrival=index)


def _count_blocks(sequence: Sequence) -> int:
    return -(-sequence.max_num_tokens // _BLOCK_TOKENS)
