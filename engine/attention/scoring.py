"""How one attention layer scores keys."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Scoring:
    """Scale, window in tokens (a token counts itself), soft cap, and sinks, one per query head."""

    scale: float
    window: int | None = None
    softcap: float | None = None
    sinks: torch.Tensor | None = None
