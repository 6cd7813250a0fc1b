"""From logits to token ids, one independent draw per row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from engine.sampling import SamplingParams
from engine.uniform import uniforms

#: How many of the likeliest tokens are tried for top_p before all are sorted.
_TOP_P_CANDIDATES = 256


@dataclass(frozen=True, slots=True)
class Draw:
    """How one row draws: its settings and which token of its completion this is."""

    params: SamplingParams
    position: int


def sample(logits: torch.Tensor, draws: Sequence[Draw]) -> list[int | None]:
    """One token id per row of float32 logits [rows, vocabulary].

    None for a row without a usable distribution (NaN, or infinite everywhere); the other
    rows are unharmed. A row's token depends on its own logits, seed and position only.
    """
    tokens: list[int | None] = logits.argmax(dim=-1).tolist()
    peaks = logits.amax(dim=-1)
    drawn = [row for row, draw in enumerate(draws) if not draw.params.is_greedy]
    usable = torch.isfinite(peaks).tolist()
    drawn = [row for row in drawn if usable[row]]
    if drawn:
        chosen = _draw(logits[drawn] - peaks[drawn, None], [draws[row] for row in drawn])
        for row, token in zip(drawn, chosen, strict=True):
            tokens[row] = token
    return [token if fine else None for token, fine in zip(tokens, usable, strict=True)]


def _draw(logits: torch.Tensor, draws: Sequence[Draw]) -> list[int]:
    """Inverse CDF in the order of the vocabulary; `logits` have their peak at 0."""
    temperatures = torch.tensor([draw.params.temperature for draw in draws])
    scaled = _keep_top_k(logits / temperatures[:, None], [draw.params.top_k for draw in draws])
    probabilities = _keep_top_p(torch.softmax(scaled, dim=-1), [draw.params.top_p for draw in draws])
    # Summed in float64: over 100,000 tokens float32 would lose the unlikely ones.
    cumulative = probabilities.cumsum(dim=-1, dtype=torch.float64)
    total = cumulative[:, -1].numpy()
    chances = uniforms([draw.params.seed for draw in draws], [draw.position for draw in draws])
    # Kept below the total, so that the last token with a probability is the last one to be drawn.
    targets = np.minimum(chances * total, np.nextafter(total, 0))
    found = torch.searchsorted(cumulative, torch.from_numpy(targets)[:, None], right=True)
    ids: list[int] = found[:, 0].tolist()
    return ids


def _keep_top_k(logits: torch.Tensor, top_k: Sequence[int]) -> torch.Tensor:
    """Hide all but each row's k largest; equals of the k-th stay, so that no order decides."""
    vocab_size = logits.shape[-1]
    rows = [row for row, k in enumerate(top_k) if 0 < k < vocab_size]
    if not rows:
        return logits
    largest = logits[rows].topk(max(top_k[row] for row in rows), dim=-1).values
    places = torch.tensor([[top_k[row] - 1] for row in rows])
    hidden = logits[rows] < largest.gather(1, places)
    kept = logits.clone()
    kept[rows] = logits[rows].masked_fill(hidden, float("-inf"))
    return kept


def _keep_top_p(probabilities: torch.Tensor, top_p: Sequence[float]) -> torch.Tensor:
    """Zero all but the fewest likeliest tokens whose sum reaches p; equals of the last stay."""
    kept = probabilities
    for row, p in enumerate(top_p):
        if p < 1:
            if kept is probabilities:
                kept = probabilities.clone()
            least = _least_probability(probabilities[row], p)
            kept[row] = torch.where(probabilities[row] >= least, probabilities[row], 0)
    return kept


def _least_probability(probabilities: torch.Tensor, p: float) -> torch.Tensor:
    count = min(_TOP_P_CANDIDATES, len(probabilities))
    ranked = probabilities.topk(count).values
    if ranked.sum(dtype=torch.float64) < p and count < len(probabilities):
        ranked = probabilities.sort(descending=True).values
    reached = ranked.cumsum(0, dtype=torch.float64) >= p
    # Rounding may leave the sum of all just under p: then everything is kept.
    return ranked[reached.int().argmax()] if reached.any() else ranked[-1]
