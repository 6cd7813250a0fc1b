"""Draws from the likeliest tokens alone: top_k, top_p and min_p, without sorting the vocabulary.

Each row looks at so many of its likeliest tokens as its settings call for. Where the limit of
what it keeps lies beyond them, or just at the last one, it looks at more, in the end at all.
How far a row looks depends on its own logits and settings, so its draw is the same in any batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from engine import inverse_cdf
from engine.sampling import SamplingParams
from engine.scaled_rows import ScaledRows

#: How many of the likeliest tokens are looked at: first, next and last before all are.
_DEPTHS = (64, 256, 2048)


def is_truncated(params: SamplingParams, vocab_size: int) -> bool:
    """Whether these settings leave out some tokens of the vocabulary."""
    return 0 < params.top_k < vocab_size or params.top_p < 1 or params.min_p > 0


def draw_truncated(
    scaled: ScaledRows, params: Sequence[SamplingParams], chances: torch.Tensor
) -> torch.Tensor:
    """One token id per row, each by its chance in [0, 1)."""
    device, vocab_size = scaled.logits.device, scaled.logits.shape[1]
    top_k = [each.top_k if each.top_k < vocab_size else 0 for each in params]
    limits = _limits(scaled, params, top_k)
    # Whether a row must look further is known on the device, and a GPU would have to be waited for.
    depths = [depth for depth in _DEPTHS if depth < vocab_size] if device.type == "cpu" else []
    first = torch.tensor([_first_depth(depths, k) for k in top_k], device=device)
    tokens = torch.zeros(len(params), dtype=torch.long, device=device)
    looking = torch.ones(len(params), dtype=torch.bool, device=device)
    for turn, depth in enumerate(depths):
        rows = (looking & (first <= turn)).nonzero()[:, 0]
        if len(rows):
            values, ids = scaled.of(rows).likeliest(depth)
            lowest, sees_all = _lowest(values, limits.of(rows))
            tokens[rows] = _draw_in_order(values.exp() * (values >= lowest), ids, chances[rows])
            looking[rows[sees_all]] = False
    rows = looking.nonzero()[:, 0] if depths else torch.arange(len(params), device=device)
    if len(rows):
        tokens[rows] = _draw_from_all(scaled.of(rows), limits.of(rows), chances[rows])
    return tokens


def _first_depth(depths: Sequence[int], top_k: int) -> int:
    """Index of the first depth that shows where top_k's limit lies; one past the last for all tokens."""
    return next((at for at, depth in enumerate(depths) if depth > top_k), len(depths))


@dataclass(frozen=True, slots=True)
class _Limits:
    """What each row keeps, as tensors [rows, 1]; `top_k` is 0 where it is off."""

    top_k: torch.Tensor
    top_p: torch.Tensor
    log_min_p: torch.Tensor
    mass: torch.Tensor

    def of(self, rows: torch.Tensor) -> _Limits:
        return _Limits(self.top_k[rows], self.top_p[rows], self.log_min_p[rows], self.mass[rows])


def _limits(scaled: ScaledRows, params: Sequence[SamplingParams], top_k: Sequence[int]) -> _Limits:
    device = scaled.logits.device

    def column(values: Sequence[float], dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype, device=device)[:, None]

    # top_p alone is a share of everything; after top_k it is a share of what that left.
    of_all = [row for row, each in enumerate(params) if each.top_p < 1 and not top_k[row]]
    mass = torch.zeros(len(params), 1, dtype=torch.float64, device=device)
    if of_all:
        rows = torch.tensor(of_all, device=device)
        mass[rows] = inverse_cdf.mass(scaled.of(rows).weights())[:, None]
    min_p = [math.log(each.min_p) if each.min_p else -math.inf for each in params]
    return _Limits(
        top_k=column(top_k, torch.long),
        top_p=column([each.top_p for each in params], torch.float64),
        log_min_p=column(min_p, scaled.logits.dtype),
        mass=mass,
    )


def _lowest(ranked: torch.Tensor, limits: _Limits) -> tuple[torch.Tensor, torch.Tensor]:
    """The lowest value that each row keeps [rows, 1], and which rows see all that they keep [rows].

    Equals of the last one kept stay, so that no order decides between them.
    """
    has_k = limits.top_k > 0
    kth = ranked.gather(1, (limits.top_k - 1).clamp(0, ranked.shape[1] - 1))
    least = torch.where(has_k, kth, -math.inf)
    left = ranked.double().exp() * (ranked >= least)
    cumulative = left.cumsum(dim=-1)
    reached = cumulative >= limits.top_p * torch.where(has_k, cumulative[:, -1:], limits.mass)
    # Rounding may leave the sum of all just under p: then nothing is cut.
    cuts = (limits.top_p < 1) & reached[:, -1:]
    nucleus = ranked.gather(1, reached.int().argmax(dim=-1, keepdim=True))
    lowest = torch.where(cuts, torch.maximum(least, nucleus), least)
    lowest = torch.maximum(lowest, limits.log_min_p)
    # Equals of the k-th beyond what is seen here would belong to the sum of which top_p is a share.
    sees_all = ranked[:, -1:] < torch.where(has_k, least, lowest)
    return lowest, sees_all[:, 0]


def _draw_in_order(weights: torch.Tensor, ids: torch.Tensor, chances: torch.Tensor) -> torch.Tensor:
    # In the order of the vocabulary: the order of the ranks would turn with the last digit of a logit.
    ids, order = ids.sort(dim=-1)
    columns = inverse_cdf.draw_few(weights.gather(1, order), chances)
    return ids.gather(1, columns[:, None])[:, 0]


def _draw_from_all(scaled: ScaledRows, limits: _Limits, chances: torch.Tensor) -> torch.Tensor:
    whole = scaled.whole()
    lowest, _ = _lowest(whole.sort(dim=-1, descending=True).values, limits)
    left_out = whole < lowest
    return inverse_cdf.draw_whole(whole.exp_().masked_fill_(left_out, 0), chances)
