"""Attention by torch's `varlen_attn`, which reads the blocks through their tables on CUDA."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.attention.varlen import varlen_attn

from engine.attention.attention import UnsupportedScoring
from engine.attention.scoring import Scoring
from engine.batch import Batch
from engine.cache import KVCache


def require_block_tables() -> None:
    """Raise ImportError where this torch's `varlen_attn` reads no block tables, as before 2.13."""
    if "block_table" not in inspect.signature(varlen_attn).parameters:
        raise ImportError(f"varlen_attn of torch {torch.__version__} takes no block_table")


@dataclass(frozen=True, slots=True)
class VarlenForward:
    """One step of attention. Nothing waits for the device: the host knows the bounds already."""

    batch: Batch
    cache: KVCache
    kernel: Callable[..., Any] = varlen_attn

    def attend(
        self, layer: int, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scoring: Scoring
    ) -> torch.Tensor:
        """Keep keys and values [rows, heads, width], then answer the queries, [rows, H, width]."""
        if scoring.softcap is not None or scoring.sinks is not None:
            raise UnsupportedScoring("varlen_attn knows neither soft caps nor sinks")
        self.cache.write(layer, self.batch.slots, keys, values)
        kept_keys, kept_values = self.cache.layer(layer)
        answer: torch.Tensor = self.kernel(
            query.to(kept_keys.dtype),
            kept_keys,
            kept_values,
            self.batch.row_starts,
            None,
            self.batch.max_query_tokens,
            self.batch.max_context_tokens,
            scale=scoring.scale,
            # How far a token sees to the left, itself not counted, and to the right.
            window_size=(-1 if scoring.window is None else scoring.window - 1, 0),
            enable_gqa=True,
            seqused_k=self.batch.lengths,
            block_table=self.batch.block_tables,
            # One pass over the context: otherwise a row's last bits would depend on its company.
            num_splits=1,
        )
        return answer.to(query.dtype)
