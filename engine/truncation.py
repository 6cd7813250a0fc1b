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


@dataclass(frozen=True, slots=True)
class Truncation:
    """What rows keep, as tensors [rows, 1]; `top_k` is 0 where it is off.

    `of_all` [some rows] are those whose top_p is a share of everything; after top_k it is a share
    of what that left.
    """

    top_k: torch.Tensor
    top_p: torch.Tensor
    log_min_p: torch.Tensor
    of_all: torch.Tensor


def lay_out_truncation(params: Sequence[SamplingParams], *, vocab_size: int) -> Truncation:
    """What rows with these settings keep."""
    top_k = [each.top_k if each.top_k < vocab_size else 0 for each in params]
    of_all = [row for row, each in enumerate(params) if each.top_p < 1 and not top_k[row]]
    min_p = [math.log(each.min_p) if each.min_p else -math.inf for each in params]
    return Truncation(
        top_k=torch.tensor(top_k)[:, None],
        top_p=torch.tensor([each.top_p for each in params], dtype=torch.float64)[:, None],
        log_min_p=torch.tensor(min_p)[:, None],
        of_all=torch.tensor(of_all, dtype=torch.long),
    )


def draw_truncated(scaled: ScaledRows, truncation: Truncation, chances: torch.Tensor) -> torch.Tensor:
    """One token id per row, each by its chance in [0, 1)."""
    device, (num_rows, vocab_size) = scaled.logits.device, scaled.logits.shape
    limits = _limits(scaled, truncation)
    # Whether a row must look further is known on the device, and a GPU would have to be waited for.
    depths = [depth for depth in _DEPTHS if depth < vocab_size] if device.type == "cpu" else []
    if not depths:
        return _draw_from_all(scaled, limits, chances)
    # Where top_k's limit lies within what is seen; one past the last depth for all tokens.
    first = (limits.top_k >= torch.tensor(depths)).sum(dim=1)
    tokens = torch.zeros(num_rows, dtype=torch.long)
    looking = torch.ones(num_rows, dtype=torch.bool)
    for turn, depth in enumerate(depths):
        rows = (looking & (first <= turn)).nonzero()[:, 0]
        if len(rows):
            values, ids = scaled.of(rows).likeliest(depth)
            lowest, sees_all = _lowest(values, limits.of(rows))
            tokens[rows] = _draw_in_order(values.exp() * (values >= lowest), ids, chances[rows])
            looking[rows[sees_all]] = False
    rows = looking.nonzero()[:, 0]
    if len(rows):
        tokens[rows] = _draw_from_all(scaled.of(rows), limits.of(rows), chances[rows])
    return tokens


@dataclass(frozen=True, slots=True)
class _Limits:
    """What each row keeps, and the mass of all its tokens, as tensors [rows, 1]."""

    top_k: torch.Tensor
    top_p: torch.Tensor
    log_min_p: torch.Tensor
    mass: torch.Tensor

    def of(self, rows: torch.Tensor) -> _Limits:
        return _Limits(self.top_k[rows], self.top_p[rows], self.log_min_p[rows], self.mass[rows])


def _limits(scaled: ScaledRows, truncation: Truncation) -> _Limits:
    mass = torch.zeros_like(truncation.top_p)
    if len(truncation.of_all):
        mass[truncation.of_all] = inverse_cdf.mass(scaled.of(truncation.of_all).weights())[:, None]
    return _Limits(truncation.top_k, truncation.top_p, truncation.log_min_p, mass)


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
