"""The sequences of one step as flat tensors: there is no padding and no batch dimension.

plan     decode a, decode b, chunk of c (3 tokens)
row        0   1   2   3   4
token      a9  b4  c0  c1  c2         input_ids
position   9   4   0   1   2          positions
slot       where its key and value go in the cache (block x block_size + offset)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
import torch

from engine.block_manager import NULL_BLOCK
from engine.scheduler import Span, StepPlan

#: Decodes are attended in groups of similar length, or one long one would make all long.
_SHORTEST_GROUP_TOKENS = 128


@dataclass(slots=True)
class AttentionGroup:
    """Rows that attend together: B sequences with n new tokens each, over L cached positions.

    `slots` is [B, L], `positions` [B, n]; the rows are contiguous in the flat batch.
    """

    first_row: int
    slots: torch.Tensor
    positions: torch.Tensor
    _hidden: dict[int | None, torch.Tensor] = field(default_factory=dict)

    @property
    def num_rows(self) -> int:
        return self.positions.numel()

    def hidden(self, window: int | None) -> torch.Tensor:
        """Which cached positions each new token must not see, [B, n, L].

        A token sees itself and what came before it; with a window only the last `window`
        positions, itself counted.
        """
        if window not in self._hidden:
            keys = torch.arange(self.slots.shape[1])
            distance = self.positions[..., None] - keys
            hidden = distance < 0
            if window is not None:
                hidden |= distance >= window
            self._hidden[window] = hidden
        return self._hidden[window]


@dataclass(frozen=True, slots=True)
class Batch:
    """One step's input: everything the network and the cache need to know.

    `sampling_spans` are the spans that draw a next token, in the order of `sample_rows`.
    """

    input_ids: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    sample_rows: torch.Tensor
    sampling_spans: tuple[Span, ...]
    groups: tuple[AttentionGroup, ...]


def build_batch(plan: StepPlan, *, block_size: int) -> Batch:
    """Lay the plan out in rows."""
    decodes = sorted((span for span in plan.spans if span.is_decode), key=_group_key)
    bundles = [list(bundle) for _, bundle in groupby(decodes, key=_group_key)]
    bundles += [[span] for span in plan.spans if not span.is_decode]
    spans = [span for bundle in bundles for span in bundle]

    positions = [np.arange(span.start, span.start + span.count) for span in spans]
    tables = [_slots(span, block_size) for span in spans]
    tokens = [token for span in spans for token in _tokens(span)]
    last_rows = np.cumsum([span.count for span in spans]) - 1
    sampling = [(int(row), span) for row, span in zip(last_rows, spans, strict=True) if span.samples]
    return Batch(
        input_ids=torch.tensor(tokens, dtype=torch.long),
        positions=torch.from_numpy(np.concatenate(positions)),
        slots=torch.from_numpy(
            np.concatenate([table[span.start :] for table, span in zip(tables, spans, strict=True)])
        ),
        sample_rows=torch.tensor([row for row, _ in sampling], dtype=torch.long),
        sampling_spans=tuple(span for _, span in sampling),
        groups=tuple(_groups(bundles, tables)),
    )


def _group_key(span: Span) -> int:
    return max(span.start, _SHORTEST_GROUP_TOKENS - 1).bit_length()


def _tokens(span: Span) -> list[int]:
    return span.sequence.token_ids[span.start : span.start + span.count]


def _slots(span: Span, block_size: int) -> np.ndarray:
    """The slots of every position up to the span's end."""
    table = np.asarray(span.sequence.block_table, dtype=np.int64)
    every = (table[:, None] * block_size + np.arange(block_size)).reshape(-1)
    return every[: span.start + span.count]


def _groups(bundles: list[list[Span]], tables: list[np.ndarray]) -> Iterator[AttentionGroup]:
    remaining = iter(tables)
    row = 0
    for bundle in bundles:
        own = [next(remaining) for _ in bundle]
        # Past a sequence's end stands the null block, which is zero: what other sequences left
        # in a block must not be read, not even to be masked.
        slots = np.full((len(own), max(len(table) for table in own)), NULL_BLOCK, dtype=np.int64)
        for target, table in zip(slots, own, strict=True):
            target[: len(table)] = table
        positions = np.stack([np.arange(span.start, span.start + span.count) for span in bundle])
        group = AttentionGroup(row, torch.from_numpy(slots), torch.from_numpy(positions))
        yield group
        row += group.num_rows
