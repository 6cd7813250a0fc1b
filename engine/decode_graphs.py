"""Forward passes of decode steps, recorded once per number of rows and replayed.

    step        5 decodes             recorded    1, 2, 4, 8, 16, 32, 48 ... rows
    batch       a b c d e · · ·       3 rows of padding on the null block; 8 rows are replayed
    logits      a b c d e             what the padding gives, nobody reads

A replay reads its input where the recorded pass did, and costs the host one call instead of
hundreds. Only decodes have so few shapes that each can be recorded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from engine.batch import Batch, build_batch
from engine.block_manager import NULL_BLOCK
from engine.cache import KVCache
from engine.device import Recording, Stream
from engine.network import Network
from engine.plan import StepPlan

#: Numbers of rows that are recorded, up to the first that holds all; beyond, every further 16.
_SMALL_SIZES = (1, 2, 4, 8)
_SIZE_STEP = 16


@dataclass(frozen=True, slots=True)
class _Graph:
    batch: Batch
    recording: Recording


class DecodeGraphs:
    """Graphs for up to `max_rows` decodes of sequences of up to `max_length` tokens.

    The memory of the cache must stay where it is.
    """

    def __init__(
        self, network: Network, cache: KVCache, stream: Stream, *, max_rows: int, max_length: int
    ) -> None:
        sizes = recorded_sizes(max_rows)
        shape = sizes[-1], network.vocab_size
        self._logits = torch.zeros(shape, dtype=torch.float32, device=network.device)
        self._graphs: dict[int, _Graph] = {}
        # The biggest first: the others find room in the memory that it needed.
        for size in reversed(sizes):
            batch = _padding_batch(size, max_length=max_length, block_size=cache.block_size)
            batch = batch.to(network.device)
            recording = stream.record(lambda batch=batch: self._forward(network, batch, cache))  # type: ignore[misc]
            self._graphs[size] = _Graph(batch, recording)

    def filled_up(self, plan: StepPlan) -> StepPlan | None:
        """The plan with padding up to a number of rows that was recorded; None if it cannot be replayed."""
        num_rows = len(plan.spans) + plan.num_padding_tokens
        size = min((size for size in self._graphs if size >= num_rows), default=None)
        if size is None or not plan.spans or not all(span.is_decode for span in plan.spans):
            return None
        return replace(plan, num_padding_tokens=size - len(plan.spans))

    def replay(self, batch: Batch) -> torch.Tensor:
        """The logits [sampled rows, vocabulary] of a plan that was filled up, until the next replay.

        To be called as work of the stream.
        """
        graph = self._graphs[len(batch.input_ids)]
        _fill(graph.batch, batch)
        graph.recording.replay()
        # All rows sample but for those of padding, which come last.
        return self._logits[: len(batch.sample_rows)]

    def _forward(self, network: Network, batch: Batch, cache: KVCache) -> None:
        self._logits[: len(batch.sample_rows)] = network.forward(batch, cache)


def recorded_sizes(max_rows: int) -> list[int]:
    """The numbers of rows to record, smallest first."""
    sizes = [size for size in _SMALL_SIZES if size < max_rows]
    larger = range(_SIZE_STEP, max_rows + _SIZE_STEP, _SIZE_STEP)
    return [*sizes, *larger] if max_rows > _SMALL_SIZES[-1] else [*sizes, max_rows]


def _padding_batch(size: int, *, max_length: int, block_size: int) -> Batch:
    """Rows of padding alone, with tables as wide as the longest sequence needs, all of them sampled."""
    batch = build_batch(StepPlan((), num_padding_tokens=size), block_size=block_size)
    tables = torch.full((size, -(-max_length // block_size)), NULL_BLOCK, dtype=torch.int32)
    return replace(batch, block_tables=tables, sample_rows=torch.arange(size), max_context_tokens=max_length)


def _fill(recorded: Batch, batch: Batch) -> None:
    """Put a step's input where the recorded pass reads it."""
    recorded.input_ids.copy_(batch.input_ids)
    recorded.positions.copy_(batch.positions)
    recorded.slots.copy_(batch.slots)
    recorded.lengths.copy_(batch.lengths)
    width = batch.block_tables.shape[1]
    recorded.block_tables[:, :width] = batch.block_tables
    recorded.block_tables[:, width:] = NULL_BLOCK
