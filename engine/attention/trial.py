"""Asks an attention for a tiny step and compares it with the plain one.

A capability is not read off a version but tried out: head widths, page sizes, kinds of numbers,
soft caps and sinks that a kernel does not take show here, as an error or as another result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import torch

from engine.attention.attention import Attention
from engine.attention.demand import LayerDemand
from engine.attention.reference import ReferenceForward
from engine.batch import build_batch
from engine.block_manager import BlockManager
from engine.cache import CacheFormat, KVCache
from engine.plan import Span, StepPlan
from engine.protocol import EngineRequest
from engine.sequence import Sequence

#: Largest difference to the plain attention, as a share of the largest result: a few roundings.
_TOLERANCE = {torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 3e-2}
#: A window that the trial's sequences outgrow, and a soft cap that their scores feel.
_WINDOW, _SOFTCAP = 5, 1.0
_NUM_BLOCKS = 4


def find_fault(
    attention: Attention, demands: Iterable[LayerDemand], format: CacheFormat, *, block_size: int
) -> str | None:
    """Why this attention cannot serve one of the layers, or None."""
    distinct = {_key(demand): demand for demand in demands}
    for demand in distinct.values():
        try:
            difference = _Trial(demand, format, block_size).difference(attention)
        except Exception as error:
            # What a kernel raises for what it does not take is its own affair.
            return f"{type(error).__name__}: {error}"
        if not difference <= _TOLERANCE[format.dtype]:
            return f"its results are off by {difference:.1e} of the largest"
    return None


def _key(demand: LayerDemand) -> tuple[object, ...]:
    scoring = demand.scoring
    kinds = (scoring.window is None, scoring.softcap is None, scoring.sinks is None)
    return demand.shape, demand.num_query_heads, scoring.scale, *kinds


@dataclass(frozen=True, slots=True)
class _Trial:
    """One layer's step: a decode that has outgrown a block, the end of a short prompt, and padding."""

    demand: LayerDemand
    format: CacheFormat
    block_size: int

    def difference(self, attention: Attention) -> float:
        """The largest difference to the plain attention, as a share of the largest result."""
        scoring = self.demand.scoring
        if scoring.window is not None:
            scoring = replace(scoring, window=_WINDOW)
        if scoring.softcap is not None:
            scoring = replace(scoring, softcap=_SOFTCAP)
        plan = StepPlan(tuple(self._spans()), num_padding_tokens=1)
        batch = build_batch(plan, block_size=self.block_size).to(self.format.device)
        answers = []
        for start in (attention.start, ReferenceForward):
            generator = torch.Generator().manual_seed(1)
            cache = self._filled_cache(plan.spans, generator)
            count = len(batch.input_ids)
            query = self._random(count, self.demand.num_query_heads, self.demand.shape.key_width, generator)
            keys, values = self._rows(count, generator)
            # The last row is padding, whose answer nobody reads.
            answers.append(start(batch, cache).attend(0, query, keys, values, scoring)[:-1].float())
        answer, expected = answers
        return float((answer - expected).abs().max() / expected.abs().max())

    def _spans(self) -> Iterator[Span]:
        blocks = BlockManager(_NUM_BLOCKS, block_size=self.block_size)
        for name, num_tokens, num_new in (("decode", self.block_size + 5, 1), ("chunk", 7, 4)):
            request = EngineRequest(id=name, token_ids=range(num_tokens), max_tokens=1)
            sequence = Sequence(request, arrival=0)
            blocks.book(sequence)
            yield Span(sequence, num_tokens - num_new, num_new)

    def _filled_cache(self, spans: tuple[Span, ...], generator: torch.Generator) -> KVCache:
        """A cache with what the spans find there, and NaN where no kernel has business to read."""
        cache = KVCache(
            {0: self.demand.shape}, num_blocks=_NUM_BLOCKS, block_size=self.block_size, format=self.format
        )
        for kept in cache.layer(0):
            kept.fill_(float("nan"))
        for span in spans:
            blocks = torch.tensor(span.sequence.block_table)
            positions = torch.arange(span.start)
            slots = blocks[positions // self.block_size] * self.block_size + positions % self.block_size
            cache.write(0, slots.to(self.format.device), *self._rows(span.start, generator))
        return cache

    def _rows(self, count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [count, heads, width]."""
        shape = self.demand.shape
        keys = self._random(count, shape.num_heads, shape.key_width, generator)
        return keys, self._random(count, shape.num_heads, shape.value_width, generator)

    def _random(self, count: int, num_heads: int, width: int, generator: torch.Generator) -> torch.Tensor:
        numbers = torch.randn(count, num_heads, width, generator=generator)
        return numbers.to(self.format.device, self.format.dtype)
