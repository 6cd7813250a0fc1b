"""Steps of attention over random numbers, to be answered by any attention in any process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from engine.attention.attention import Attention
from engine.attention.scoring import Scoring
from engine.batch import build_batch
from engine.block_manager import BlockManager
from engine.cache import CacheFormat, KVCache
from engine.cache_layout import LayerShape
from engine.plan import Span, StepPlan
from engine.protocol import EngineRequest
from engine.sequence import Sequence


class Part(NamedTuple):
    """A sequence of so many tokens, of which the last `num_new` are computed in the step."""

    num_tokens: int
    num_new: int


#: A context of several stretches, two that fit in a block, and prompts with and without history.
RAGGED = (Part(600, 1), Part(5, 1), Part(90, 19), Part(1, 1), Part(70, 70), Part(16, 2))


@dataclass(frozen=True)
class AttentionCase:
    """One step. A sequence's numbers are the same in whatever company; all other slots hold NaN."""

    parts: tuple[Part, ...] = RAGGED
    num_heads: int = 6
    num_kv_heads: int = 2
    key_width: int = 24
    value_width: int = 20
    block_size: int = 16
    dtype: torch.dtype = torch.float32
    scale: float = 0.3
    window: int | None = None
    softcap: float | None = None
    has_sinks: bool = False
    num_padding_rows: int = 0

    @property
    def scoring(self) -> Scoring:
        sinks = torch.linspace(-2, 2, self.num_heads).to(self.dtype) if self.has_sinks else None
        return Scoring(self.scale, self.window, self.softcap, sinks)

    def answer(self, attention: Attention) -> npt.NDArray[np.float32]:
        """The answers [rows, heads, value width], without those of padding rows."""
        num_blocks = sum(-(-part.num_tokens // self.block_size) for part in self.parts)
        # One block more than is booked: nobody's.
        blocks = BlockManager(num_blocks + 1, block_size=self.block_size)
        cache = KVCache(
            {0: LayerShape(self.num_kv_heads, self.key_width, self.value_width)},
            num_blocks=blocks.num_blocks,
            block_size=self.block_size,
            format=CacheFormat(attention.layout, self.dtype),
        )
        for kept in cache.layer(0):
            kept.fill_(float("nan"))
        spans, rows = [], []
        for index, part in enumerate(self.parts):
            request = EngineRequest(id=str(index), token_ids=range(part.num_tokens), max_tokens=1)
            sequence = Sequence(request, arrival=index)
            blocks.book(sequence)
            start = part.num_tokens - part.num_new
            spans.append(Span(sequence, start, part.num_new))
            query, keys, values = self._numbers(part)
            self._write(cache, sequence, keys[:start], values[:start])
            rows.append((query[start:], keys[start:], values[start:]))
        plan = StepPlan(tuple(spans), num_padding_tokens=self.num_padding_rows)
        if self.num_padding_rows:
            rows.append(self._numbers(Part(self.num_padding_rows, 0)))
        query, keys, values = (torch.cat(tensors) for tensors in zip(*rows, strict=True))
        batch = build_batch(plan, block_size=self.block_size)
        answer = attention.start(batch, cache).attend(0, query, keys, values, self.scoring)
        assert answer.dtype == self.dtype
        num_rows = sum(part.num_new for part in self.parts)
        return answer[:num_rows].float().numpy()

    def _numbers(self, part: Part) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(1000 * part.num_tokens + part.num_new)
        shapes = (
            (self.num_heads, self.key_width),
            (self.num_kv_heads, self.key_width),
            (self.num_kv_heads, self.value_width),
        )
        query, keys, values = (
            torch.randn(part.num_tokens, *shape, generator=generator).to(self.dtype) for shape in shapes
        )
        # As networks pass it: heads first, then seen from the rows.
        return query.transpose(0, 1).contiguous().transpose(0, 1), keys, values

    def _write(self, cache: KVCache, sequence: Sequence, keys: torch.Tensor, values: torch.Tensor) -> None:
        positions = torch.arange(len(keys))
        blocks = torch.tensor(sequence.block_table)[positions // self.block_size]
        cache.write(0, blocks * self.block_size + positions % self.block_size, keys, values)
