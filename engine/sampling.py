"""How the next token is chosen: the settings of one request."""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Temperatures below this count as 0: the likeliest token is taken.
GREEDY_BELOW = 1e-5


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one request draws its tokens; raises ValueError that names the wrong field.

    `top_k` 0 is off, and so is any value larger than the vocabulary. `top_k` is applied
    first, then `top_p` to what it left. The same `seed` draws the same tokens whatever
    runs beside. `ignore_eos` makes the model's own end token an ordinary one;
    `stop_token_ids` still end the text.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ValueError(f"temperature must be a finite number of at least 0, not {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1, not {self.top_p}")
        if isinstance(self.top_k, bool) or not isinstance(self.top_k, int) or self.top_k < 0:
            raise ValueError(f"top_k must be a whole number of at least 0, not {self.top_k}")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise ValueError(f"seed must be a whole number, not {self.seed!r}")
        if any(token < 0 for token in self.stop_token_ids):
            raise ValueError(f"stop_token_ids must not be negative, not {self.stop_token_ids}")

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is always taken, so that no seed matters."""
        return self.temperature < GREEDY_BELOW
