"""An attention: how it is called, and which caches it reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from engine.attention.scoring import Scoring
from engine.batch import Batch
from engine.cache import KVCache
from engine.cache_layout import CacheLayout


class Forward(Protocol):
    """The attention of one step: where its rows are written and what they attend to."""

    def attend(
        self, layer: int, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scoring: Scoring
    ) -> torch.Tensor:
        """Keep keys and values [rows, heads, width], then answer the queries, [rows, H, width]."""
        ...


class UnsupportedScoring(ValueError):
    """This attention cannot score as the layer asks."""


@dataclass(frozen=True, slots=True)
class Attention:
    """A way to attend: `start` makes the forward pass of a step, over a cache of this `layout`."""

    name: str
    layout: CacheLayout
    start: Callable[[Batch, KVCache], Forward]
