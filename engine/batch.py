"""The sequences of one step as flat tensors: there is no padding and no batch dimension.

plan          decode a, decode b, chunk of c (3 tokens)
row             0   1   2   3   4
token           a9  b4  c0  c1  c2        input_ids
position        9   4   0   1   2         positions
slot            where its key and value go in the cache (block x block_size + offset)
sequence        0   1   2   2   2         row_starts [0, 1, 2, 5]
length          10  5   3                 lengths: tokens in the cache after this step
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt
import torch

from engine.block_manager import NULL_BLOCK
from engine.plan import Span, StepPlan
from engine.sequence import Sequence
from engine.tensors import tensors_of, with_tensors

_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Batch:
    """One step's input: everything the network and the cache need to know.

    `block_tables` [sequences, blocks] and `lengths` [sequences] are int32; what stands past a
    sequence's own blocks is the null block. `sampling_spans` are the spans that draw a next
    token, in the order of `sample_rows`. `awaited_rows` are those whose token the step before is
    still drawing, and `awaited` its place among that step's tokens.

    `max_query_tokens` and `max_context_tokens` are bounds of a sequence's rows here and of its
    length, known without asking the device.
    """

    input_ids: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    row_starts: torch.Tensor
    block_tables: torch.Tensor
    lengths: torch.Tensor
    sample_rows: torch.Tensor
    awaited_rows: torch.Tensor
    awaited: torch.Tensor
    sampling_spans: tuple[Span, ...]
    max_query_tokens: int
    max_context_tokens: int

    def to(self, device: torch.device) -> Batch:
        """The same batch with its tensors on this device."""
        return with_tensors(self, (tensor.to(device) for tensor in tensors_of(self)))


def build_batch(plan: StepPlan, *, block_size: int, places: Mapping[Sequence, int] | None = None) -> Batch:
    """Lay the plan out in rows, those of padding last.

    A token that the step before is still drawing stands as 0; `places` says where it will be
    among that step's tokens.
    """
    spans, padding = plan.spans, plan.num_padding_tokens
    # Padding rows are sequences of one token each, on the null block.
    starts = np.array([span.start for span in spans] + [0] * padding, dtype=np.int64)
    counts = np.array([span.count for span in spans] + [1] * padding, dtype=np.int64)
    tables = _tables(spans, padding, block_size)
    row_starts = np.concatenate([[0], np.cumsum(counts)])
    owners = np.repeat(np.arange(len(counts)), counts)
    positions = np.arange(row_starts[-1]) - np.repeat(row_starts[:-1] - starts, counts)
    blocks = tables[owners, positions // block_size].astype(np.int64)
    sampling = [index for index, span in enumerate(spans) if span.samples]
    awaited = [index for index, span in enumerate(spans) if span.is_awaited]
    last_rows, lengths = row_starts[1:] - 1, starts + counts
    return Batch(
        input_ids=torch.from_numpy(_tokens(spans, padding)),
        positions=torch.from_numpy(positions),
        slots=torch.from_numpy(blocks * block_size + positions % block_size),
        row_starts=torch.from_numpy(row_starts.astype(np.int32)),
        block_tables=torch.from_numpy(tables),
        lengths=torch.from_numpy(lengths.astype(np.int32)),
        sample_rows=torch.from_numpy(last_rows[sampling]),
        awaited_rows=torch.from_numpy(last_rows[awaited]),
        awaited=torch.tensor([(places or {})[spans[index].sequence] for index in awaited], dtype=torch.long),
        sampling_spans=tuple(spans[index] for index in sampling),
        max_query_tokens=int(counts.max(initial=0)),
        max_context_tokens=int(lengths.max(initial=0)),
    )


def _tokens(spans: tuple[Span, ...], padding: int) -> _Ints:
    return np.fromiter(chain(chain.from_iterable(map(_span_tokens, spans)), [0] * padding), dtype=np.int64)


def _span_tokens(span: Span) -> list[int]:
    known = span.sequence.token_ids[span.start : span.end]
    return known if len(known) == span.count else [*known, *[0] * (span.count - len(known))]


def _tables(spans: tuple[Span, ...], padding: int, block_size: int) -> npt.NDArray[np.int32]:
    """The blocks each sequence reads; those booked for later tokens are left out."""
    used = [-(-span.end // block_size) for span in spans]
    tables = np.full((len(spans) + padding, max(used, default=1)), NULL_BLOCK, dtype=np.int32)
    for row, span, count in zip(tables, spans, used, strict=False):
        row[:count] = span.sequence.block_table[:count]
    return tables
