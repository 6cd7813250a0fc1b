"""Rows of logits under their temperatures, computed only where they are looked at."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine import inverse_cdf


@dataclass(frozen=True, slots=True)
class ScaledRows:
    """Logits [rows, vocabulary]; scaled they are less their `peaks`, over their `temperatures`.

    Both are [rows, 1]. Scaled logits are 0 at the peak and negative elsewhere, so that their
    exponentials are weights that neither overflow nor vanish.
    """

    logits: torch.Tensor
    peaks: torch.Tensor
    temperatures: torch.Tensor

    def __len__(self) -> int:
        return len(self.logits)

    def of(self, rows: torch.Tensor) -> ScaledRows:
        """Some of the rows; `rows` are ascending indices."""
        if len(rows) == len(self):
            return self
        return ScaledRows(self.logits[rows], self.peaks[rows], self.temperatures[rows])

    def whole(self) -> torch.Tensor:
        """All scaled logits, in a tensor of their own."""
        return torch.sub(self.logits, self.peaks).div_(self.temperatures)

    def weights(self) -> torch.Tensor:
        """Exponentials of all scaled logits, in a tensor of their own."""
        return self.whole().exp_()

    def likeliest(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The largest scaled logits of each row, largest first, and their tokens."""
        values, tokens = inverse_cdf.likeliest(self.logits, count)
        return values.sub_(self.peaks).div_(self.temperatures), tokens
