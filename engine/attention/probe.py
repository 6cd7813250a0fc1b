"""A forward pass that computes nothing and finds out what a network asks of its attention."""

from __future__ import annotations

import torch

from engine.attention.demand import LayerDemand
from engine.attention.scoring import Scoring
from engine.cache_layout import LayerShape


class ShapeProbe:
    """Notes what each layer demands, which layers ask at all, and what makes them inexact."""

    def __init__(self) -> None:
        self.demands: dict[int, LayerDemand] = {}
        self.faults: list[str] = []

    def note(self, module: torch.nn.Module, mask: torch.Tensor | None) -> None:
        """Take down what a layer says beside its numbers."""
        layer = module.layer_idx
        if layer in self.demands:
            self.faults.append(f"layer {layer} attends more than once")
        if mask is not None:
            self.faults.append("it brings its own attention mask")
        if getattr(module, "is_causal", True) is False:
            self.faults.append("its attention looks ahead")

    def attend(
        self, layer: int, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scoring: Scoring
    ) -> torch.Tensor:
        """Take down the demand; zeros of the shape an answer would have."""
        shape = LayerShape(keys.shape[1], keys.shape[2], values.shape[2])
        self.demands[layer] = LayerDemand(shape, query.shape[1], scoring)
        return query.new_zeros(query.shape[0], query.shape[1], values.shape[2])
