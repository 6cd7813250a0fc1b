"""A forward pass that computes nothing and finds out what a network would keep."""

from __future__ import annotations

import torch

from engine.attention.scoring import Scoring
from engine.cache import LayerShape


class ShapeProbe:
    """Notes what each layer would keep, which layers ask at all, and what makes them inexact."""

    def __init__(self) -> None:
        self.layers: dict[int, LayerShape] = {}
        self.faults: list[str] = []

    def note(
        self, module: torch.nn.Module, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None
    ) -> None:
        """Take down one layer's call: key and value [1, heads, rows, width]."""
        layer = int(module.layer_idx)  # type: ignore[arg-type]
        if layer in self.layers:
            self.faults.append(f"layer {layer} attends more than once")
        if mask is not None:
            self.faults.append("it brings its own attention mask")
        if getattr(module, "is_causal", True) is False:
            self.faults.append("its attention looks ahead")
        self.layers[layer] = LayerShape(key.shape[1], key.shape[3], value.shape[3])

    def attend(
        self, layer: int, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scoring: Scoring
    ) -> torch.Tensor:
        """Zeros of the shape an answer would have."""
        return query.new_zeros(query.shape[0], query.shape[1], values.shape[2])
