"""Attention in plain torch, sequence by sequence: slow, obvious, for any device, block size and layout.

It computes in float32 whatever the cache keeps, and asks the device for lengths: not to be captured.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch

from engine.attention.scoring import Scoring
from engine.batch import Batch
from engine.cache import KVCache


@dataclass(frozen=True, slots=True)
class ReferenceForward:
    """One step of plain attention."""

    batch: Batch
    cache: KVCache

    def attend(
        self, layer: int, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scoring: Scoring
    ) -> torch.Tensor:
        """Keep keys and values [rows, heads, width], then answer the queries, [rows, H, width]."""
        self.cache.write(layer, self.batch.slots, keys, values)
        starts = self.batch.row_starts.tolist()
        parts = []
        for sequence, (first, end) in enumerate(itertools.pairwise(starts)):
            length = int(self.batch.lengths[sequence])
            kept = self.cache.read(layer, self.batch.block_tables[sequence], length)
            parts.append(_attend(query[first:end].float(), kept[0].float(), kept[1].float(), scoring))
        return torch.cat(parts).to(query.dtype)


def _attend(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scoring: Scoring) -> torch.Tensor:
    """Softmax attention of a sequence's newest tokens [n, H, D] over all its L tokens [L, Hkv, D]."""
    num_new, num_heads, _ = query.shape
    num_shared = num_heads // keys.shape[1]
    keys = keys.repeat_interleave(num_shared, dim=1)
    values = values.repeat_interleave(num_shared, dim=1)
    scores = torch.einsum("nhd,lhd->hnl", query * scoring.scale, keys)
    if scoring.softcap is not None:
        scores = torch.tanh(scores / scoring.softcap) * scoring.softcap
    hidden = _hidden(num_new, len(keys), scoring.window, query.device)
    weights = _softmax(scores.masked_fill(hidden, float("-inf")), scoring.sinks)
    return torch.einsum("hnl,lhd->nhd", weights, values)


def _hidden(num_new: int, length: int, window: int | None, device: torch.device) -> torch.Tensor:
    """Which positions each of the newest tokens must not see, [n, L]."""
    positions = torch.arange(length - num_new, length, device=device)
    distance = positions[:, None] - torch.arange(length, device=device)
    hidden = distance < 0
    return hidden if window is None else hidden | (distance >= window)


def _softmax(scores: torch.Tensor, sinks: torch.Tensor | None) -> torch.Tensor:
    """Weights over the keys; a sink takes part in the sum but has no value to give."""
    if sinks is None:
        return torch.softmax(scores, dim=-1)
    sink = sinks.float().view(-1, 1, 1).expand(-1, scores.shape[1], 1)
    return torch.softmax(torch.cat([scores, sink], dim=-1), dim=-1)[..., :-1]
