"""Changes the logits as a request wishes, before anything is drawn: bias, penalties, hidden ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from engine.draw import Draw
from engine.penalties import Penalties, lay_out_penalties, penalise


@dataclass(frozen=True, slots=True)
class Adjustment:
    """What the rows' settings change, as tensors; None where nobody wants it.

    `bias_cells` and `hidden_cells` [2, cells] are rows and token ids, `bias` [cells] what is added.
    """

    bias_cells: torch.Tensor | None
    bias: torch.Tensor | None
    hidden_cells: torch.Tensor | None
    penalties: Penalties | None


def lay_out_adjustment(draws: Sequence[Draw], *, vocab_size: int) -> Adjustment | None:
    """What these rows want changed; None if nobody wants anything."""
    bias = [(row, *pair) for row, draw in enumerate(draws) for pair in draw.params.logit_bias]
    hidden = [(row, token) for row, draw in enumerate(draws) for token in draw.hidden if token < vocab_size]
    penalties = lay_out_penalties(draws)
    if not (bias or hidden or penalties):
        return None
    return Adjustment(
        bias_cells=torch.tensor([cell[:2] for cell in bias]).T if bias else None,
        bias=torch.tensor([float(cell[2]) for cell in bias]) if bias else None,
        hidden_cells=torch.tensor(hidden).T if hidden else None,
        penalties=penalties,
    )


def adjust(
    logits: torch.Tensor, adjustment: Adjustment | None, drawn_before: torch.Tensor | None = None
) -> torch.Tensor:
    """The logits [rows, vocabulary] as the rows' settings want them.

    `logits` itself is left alone, and returned where nobody wants a change. `drawn_before` are the
    tokens of the step before, which penalties may still wait for.
    """
    if adjustment is None:
        return logits
    adjusted = logits.clone()
    if adjustment.bias_cells is not None and adjustment.bias is not None:
        rows, tokens = adjustment.bias_cells
        adjusted[rows, tokens] += adjustment.bias
    if adjustment.penalties is not None:
        penalise(adjusted, adjustment.penalties, drawn_before)
    if adjustment.hidden_cells is not None:
        rows, tokens = adjustment.hidden_cells
        adjusted[rows, tokens] = float("-inf")
    return adjusted
