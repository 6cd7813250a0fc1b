"""What one layer of a network asks of an attention."""

from __future__ import annotations

from dataclasses import dataclass

from engine.attention.scoring import Scoring
from engine.cache_layout import LayerShape


@dataclass(frozen=True, slots=True)
class LayerDemand:
    """What the layer keeps per token, how many query heads it asks with, and how it scores."""

    shape: LayerShape
    num_query_heads: int
    scoring: Scoring
