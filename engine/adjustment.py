"""Changes the logits as a request wishes, before anything is drawn: bias, penalties, hidden ends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from engine.draw import Draw

#: What is divided by less would not stay finite.
_SMALLEST_REPETITION_PENALTY = 1e-15


def adjust(logits: torch.Tensor, draws: Sequence[Draw]) -> torch.Tensor:
    """The logits [rows, vocabulary] as the rows' settings want them.

    `logits` itself is left alone, and returned where nobody wants a change.
    """
    vocab_size = logits.shape[1]
    bias = [(row, *pair) for row, draw in enumerate(draws) for pair in draw.params.logit_bias]
    hidden = [(row, token) for row, draw in enumerate(draws) for token in draw.hidden if token < vocab_size]
    penalised = [row for row, draw in enumerate(draws) if draw.past]
    if not (bias or hidden or penalised):
        return logits
    adjusted = logits.clone()
    if bias:
        rows, tokens, values = (torch.tensor(each, device=logits.device) for each in zip(*bias, strict=True))
        adjusted[rows, tokens] += values.to(logits.dtype)
    if penalised:
        _penalise(adjusted, penalised, [draws[row] for row in penalised])
    if hidden:
        rows, tokens = torch.tensor(hidden, device=logits.device).T
        adjusted[rows, tokens] = float("-inf")
    return adjusted


def _penalise(logits: torch.Tensor, rows: Sequence[int], draws: Sequence[Draw]) -> None:
    """Change in place the logits of the tokens in each row's past.

    Only those cells are read and written. A token that occurs twice is written twice with the
    same value, so the order of writing does not matter.
    """
    ids, is_generated = (torch.from_numpy(each).to(logits.device) for each in _past_in_rows(draws))

    def column(values: list[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=logits.dtype, device=logits.device)[:, None]

    counts = logits.new_zeros(len(rows), logits.shape[1]).scatter_add_(1, ids, is_generated).gather(1, ids)
    cells = torch.tensor(rows, device=logits.device)[:, None], ids
    values = logits[cells]
    repetition = column([draw.params.repetition_penalty for draw in draws])
    repetition.clamp_(min=_SMALLEST_REPETITION_PENALTY)
    values = torch.where(values < 0, values * repetition, values / repetition)
    values -= counts * column([draw.params.frequency_penalty for draw in draws])
    values -= (counts > 0) * column([draw.params.presence_penalty for draw in draws])
    logits[cells] = values


def _past_in_rows(draws: Sequence[Draw]) -> tuple[np.ndarray, np.ndarray]:
    """The rows' pasts as one array of ids, and 1 where an id was generated, 0 where it was not.

    Short rows are filled up with their own first id, which counts for nothing more.
    """
    pasts = [draw.past for draw in draws]
    ids = np.empty((len(pasts), max(len(past) for past in pasts)), dtype=np.int64)
    is_generated = np.zeros(ids.shape, dtype=np.float32)
    for row, (draw, past) in enumerate(zip(draws, pasts, strict=True)):
        ids[row, : len(past)] = past
        ids[row, len(past) :] = past[0]
        is_generated[row, len(past) - len(draw.generated) : len(past)] = 1
    return ids, is_generated
