"""Attention by our own Triton kernels, which take what torch's `varlen_attn` does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton

from engine.attention.scoring import Scoring
from engine.attention.triton_parts import PARTS, SMALLEST_PART, attend_parts, join_parts
from engine.attention.triton_spans import attend_spans
from engine.batch import Batch
from engine.cache import KVCache

#: Rows of a tile that answers several new tokens.
_SPAN_ROWS = 64
#: Rows, and numbers of a key or value, that a matrix product takes at the least.
_LEAST = 16
#: Bytes of a step's keys at the most: with the values, those of the next step load beside them.
_STEP_BYTES = 16384
_MOST_SLOTS = 64


@dataclass(frozen=True, slots=True)
class TritonForward:
    """One step of attention. Nothing waits for the device: the grids come from the tensors' shapes."""

    batch: Batch
    cache: KVCache

    def attend(
        self, layer: int, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scoring: Scoring
    ) -> torch.Tensor:
        """Keep keys and values [rows, heads, width], then answer the queries, [rows, H, width]."""
        self.cache.write(layer, self.batch.slots, keys, values)
        kept = self.cache.layer(layer)
        asked = query.to(kept[0].dtype)
        if asked.stride(2) != 1:
            asked = asked.contiguous()
        out = query.new_empty(*query.shape[:2], values.shape[2])
        terms = _terms(asked, kept, scoring)
        self._answer_lone_tokens(out, asked, kept, scoring, terms)
        # As many rows as sequences means one row each.
        if len(query) > len(self.batch.lengths):
            self._answer_spans(out, asked, kept, scoring, terms)
        return out

    def _answer_lone_tokens(
        self,
        out: torch.Tensor,
        query: torch.Tensor,
        kept: tuple[torch.Tensor, torch.Tensor],
        scoring: Scoring,
        terms: dict[str, Any],
    ) -> None:
        """Answer the sequences with one new token, their contexts cut into parts."""
        tables, starts, lengths = self.batch.block_tables, self.batch.row_starts, self.batch.lengths
        num_sequences, num_heads, width = len(lengths), out.shape[1], out.shape[2]
        longest = tables.shape[1] * self.cache.block_size
        num_parts = min(PARTS.value, -(-longest // SMALLEST_PART.value))
        sums = out.new_empty(num_sequences, num_heads, num_parts, width, dtype=torch.float32)
        weights = out.new_empty(2, num_sequences, num_heads, num_parts, dtype=torch.float32)
        attend_parts[(num_sequences, terms["NUM_KV_HEADS"], num_parts)](
            sums,
            weights,
            query,
            *kept,
            tables,
            starts,
            lengths,
            num_parts=num_parts,
            table_stride=tables.stride(0),
            ROWS=_padded(terms["GROUP"]),
            **terms,
        )
        join_parts[(num_sequences, num_heads)](
            out,
            sums,
            weights,
            starts,
            lengths,
            out if scoring.sinks is None else scoring.sinks,
            num_parts=num_parts,
            HAS_SINKS=scoring.sinks is not None,
            **{name: terms[name] for name in ("window", "VALUE_WIDTH", "HAS_WINDOW", "VALUE_PAD", "SLOTS")},
        )

    def _answer_spans(
        self,
        out: torch.Tensor,
        query: torch.Tensor,
        kept: tuple[torch.Tensor, torch.Tensor],
        scoring: Scoring,
        terms: dict[str, Any],
    ) -> None:
        """Answer the sequences with several new tokens, tile by tile."""
        num_sequences = len(self.batch.lengths)
        rows = max(_SPAN_ROWS, _padded(terms["GROUP"]))
        # One tile more for each, which need not be full.
        num_tiles = len(query) // (rows // terms["GROUP"]) + num_sequences
        attend_spans[(num_tiles, terms["NUM_KV_HEADS"])](
            out,
            query,
            *kept,
            self.batch.block_tables,
            self.batch.row_starts,
            self.batch.lengths,
            out if scoring.sinks is None else scoring.sinks,
            num_sequences=num_sequences,
            table_stride=self.batch.block_tables.stride(0),
            HAS_SINKS=scoring.sinks is not None,
            ROWS=rows,
            **terms,
        )


def _terms(query: torch.Tensor, kept: tuple[torch.Tensor, torch.Tensor], scoring: Scoring) -> dict[str, Any]:
    """What all kernels are told about a layer."""
    _, block_size, num_kv_heads, key_width = kept[0].shape
    value_width = kept[1].shape[3]
    row_bytes = _padded(max(key_width, value_width)) * query.element_size()
    return {
        "query_row_stride": query.stride(0),
        "query_head_stride": query.stride(1),
        "scale": scoring.scale,
        "window": scoring.window or 0,
        "softcap": scoring.softcap or 0.0,
        "NUM_KV_HEADS": num_kv_heads,
        "GROUP": query.shape[1] // num_kv_heads,
        "KEY_WIDTH": key_width,
        "VALUE_WIDTH": value_width,
        "BLOCK_SIZE": block_size,
        "HAS_WINDOW": scoring.window is not None,
        "HAS_SOFTCAP": scoring.softcap is not None,
        "KEY_PAD": _padded(key_width),
        "VALUE_PAD": _padded(value_width),
        "SLOTS": min(_MOST_SLOTS, max(_LEAST, _STEP_BYTES // row_bytes)),
    }


def _padded(number: int) -> int:
    """The power of two that a tile of so many needs."""
    return int(max(_LEAST, triton.next_power_of_2(number)))
