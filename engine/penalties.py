"""Makes tokens that a text has already less likely, or more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from engine.draw import Draw


@dataclass(frozen=True, slots=True)
class Penalties:
    """The pasts of the penalised rows, and how hard each is punished, as tensors.

    `ids` and `is_generated` [penalised rows, longest past] are the tokens of each past, and 1 where
    one was generated, 0 where not; short pasts are filled up with a token of their own, which counts
    for nothing more. The token that the step before is still drawing is put in at `awaited_cells`
    [2, cells], taken from among that step's tokens at `awaited` [cells].
    """

    rows: torch.Tensor
    ids: torch.Tensor
    is_generated: torch.Tensor
    awaited_cells: torch.Tensor
    awaited: torch.Tensor
    repetition: torch.Tensor
    frequency: torch.Tensor
    presence: torch.Tensor


def lay_out_penalties(draws: Sequence[Draw]) -> Penalties | None:
    """The pasts that matter; None if none does."""
    rows = [row for row, draw in enumerate(draws) if draw.num_past_tokens]
    if not rows:
        return None
    penalised = [draws[row] for row in rows]
    ids = np.zeros((len(rows), max(draw.num_past_tokens for draw in penalised)), dtype=np.int64)
    is_generated = np.zeros(ids.shape, dtype=np.float32)
    awaited: list[tuple[int, int, int]] = []
    for row, draw in enumerate(penalised):
        past, end = draw.past, draw.num_past_tokens
        ids[row, : len(past)] = past
        ids[row, end:] = past[0] if past else 0
        is_generated[row, len(past) - len(draw.generated) : end] = 1
        if draw.awaited is not None:
            columns = range(len(past), end if past else ids.shape[1])
            awaited += [(row, column, draw.awaited) for column in columns]
    places = torch.tensor(awaited, dtype=torch.long).reshape(-1, 3).T

    def column(values: list[float]) -> torch.Tensor:
        return torch.tensor(values)[:, None]

    return Penalties(
        rows=torch.tensor(rows),
        ids=torch.from_numpy(ids),
        is_generated=torch.from_numpy(is_generated),
        awaited_cells=places[:2],
        awaited=places[2],
        repetition=column([float(draw.params.repetition_penalty) for draw in penalised]),
        frequency=column([float(draw.params.frequency_penalty) for draw in penalised]),
        presence=column([float(draw.params.presence_penalty) for draw in penalised]),
    )


def penalise(logits: torch.Tensor, penalties: Penalties, drawn_before: torch.Tensor | None) -> None:
    """Change in place the logits of the tokens in each row's past.

    Only those cells are read and written. A token that occurs twice is written twice with the
    same value, so the order of writing does not matter.
    """
    ids, is_generated = penalties.ids, penalties.is_generated
    if drawn_before is not None and len(penalties.awaited):
        rows, columns = penalties.awaited_cells
        ids = ids.index_put((rows, columns), drawn_before[penalties.awaited])
    counts = logits.new_zeros(len(ids), logits.shape[1]).scatter_add_(1, ids, is_generated).gather(1, ids)
    cells = penalties.rows[:, None], ids
    values = logits[cells]
    values = torch.where(values < 0, values * penalties.repetition, values / penalties.repetition)
    values -= counts * penalties.frequency
    values -= (counts > 0) * penalties.presence
    logits[cells] = values
