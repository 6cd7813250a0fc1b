"""Finds the decoder layers that our fused kernels compute, by trying."""

from __future__ import annotations

from typing import Any

import structlog
import torch
from torch import nn

from engine.attention.interface import forward_context
from engine.attention.scoring import Scoring
from engine.fused_layer import FusedLayer
from engine.panels import Pack, float_panels

#: The parts of a layer that the kernels stand for; a layer with others is left alone.
_PARTS = {
    "": {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"},
    "self_attn": {"q_proj", "k_proj", "v_proj", "o_proj"},
    "mlp": {"gate_proj", "up_proj", "down_proj", "act_fn"},
}
_LINEARS = tuple(
    f"{part}.{name}" for part in ("self_attn", "mlp") for name in sorted(_PARTS[part]) if name != "act_fn"
)
#: Rows of a trial: more than a tile, and not a multiple of one.
_TRIAL_ROWS = 9
#: Largest difference to the layer itself, as a share of the largest result.
_TOLERANCE = 1e-5

_log = structlog.get_logger(__name__)


def fuse_layers(network: nn.Module, pack: Pack = float_panels) -> int:
    """Replace the decoder layers that the fused kernels compute; how many there were.

    Their weights are laid out by `pack`; that they compute the same is tried in float32.
    """
    count = 0
    for owner in list(network.modules()):
        for name, layer in list(owner.named_children()):
            fused = _fused(layer, pack) if _has_parts(layer) else None
            if fused is not None:
                setattr(owner, name, fused)
                count += 1
    _log.info("layers_fused", count=count)
    return count


def _has_parts(layer: nn.Module) -> bool:
    """Whether a layer is made up of what the kernels compute, and of nothing else."""
    for part, names in _PARTS.items():
        owner = layer if not part else getattr(layer, part, None)
        if owner is None or {name for name, _ in owner.named_children()} != names:
            return False
    return all(type(layer.get_submodule(name)) is nn.Linear for name in _LINEARS) and all(
        [key for key, _ in getattr(layer, norm).named_parameters()] == ["weight"]
        for norm in ("input_layernorm", "post_attention_layernorm")
    )


def _fused(layer: Any, pack: Pack) -> FusedLayer | None:
    """The layer in fused kernels, None if they do not give what it gives."""
    generator = torch.Generator().manual_seed(1)
    width = layer.self_attn.q_proj.in_features
    hidden = torch.randn(1, _TRIAL_ROWS, width, generator=generator)
    angles = torch.randn(1, _TRIAL_ROWS, layer.self_attn.head_dim // 2, generator=generator).repeat(1, 1, 2)
    given = {"position_embeddings": (angles.cos(), angles.sin()), "attention_mask": None}
    listener = _Listener()
    try:
        with forward_context(listener):
            expected = layer(hidden, **given, position_ids=torch.arange(_TRIAL_ROWS)[None], use_cache=False)
            if not isinstance(expected, torch.Tensor) or len(listener.scorings) != 1:
                return None
            fused = FusedLayer(layer, listener.scorings[0])
            difference = (fused(hidden, **given) - expected).abs().max()
    except (AttributeError, TypeError, ValueError, RuntimeError, KeyError) as error:
        _log.info("layer_not_fused", kind=type(layer).__name__, reason=str(error))
        return None
    if not difference <= _TOLERANCE * (1 + expected.abs().max()):
        _log.info("layer_not_fused", kind=type(layer).__name__, reason="another result")
        return None
    return fused if pack is float_panels else FusedLayer(layer, listener.scorings[0], pack)


class _Listener:
    """An attention that notes how it is called, and answers so that every argument counts."""

    def __init__(self) -> None:
        self.scorings: list[Scoring] = []

    def attend(
        self, layer: int, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scoring: Scoring
    ) -> torch.Tensor:
        """Sums of a query's numbers with those of its key and its value, of the query's shape."""
        self.scorings.append(scoring)
        group = query.shape[1] // keys.shape[1]
        return query + 2 * keys.repeat_interleave(group, dim=1) - 3 * values.repeat_interleave(group, dim=1)
