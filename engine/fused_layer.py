"""A decoder layer as five kernels: what surrounds the matrix products is done inside of them.

    rows ─┬─ RMSNorm, q/k/v, rotation ── attention ── output ─(+)─┬─ RMSNorm, SiLU(gate) * up ── down ─(+)─
          └───────────────────────────────────────────────────────┴──────────────────────────────────┘

The layers of Llama and of its many relatives compute this. Whether one does is not read off its
name: `fuse_layers` tries the kernels against the layer itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from engine.attention.interface import current_forward
from engine.attention.scoring import Scoring
from engine.linear import PackedLinear
from engine.panels import PANEL, Pack, float_panels
from engine.product import multiply_gated, multiply_rotated
from engine.threads import num_threads

_Floats = npt.NDArray[np.float32]
_NO_BIAS = np.empty((2, 0), np.float32)


class FusedLayer(nn.Module):
    """A decoder layer of Llama's kind on the CPU, for inference only."""

    def __init__(self, layer: Any, scoring: Scoring, pack: Pack = float_panels) -> None:
        super().__init__()
        attention, feed_forward = layer.self_attn, layer.mlp
        self.layer_index = int(attention.layer_idx)
        self.scoring = scoring
        self._before_attention = _Norm(layer.input_layernorm)
        linears = (attention.q_proj, attention.k_proj, attention.v_proj)
        self._heads = _HeadsProduct(linears, attention.head_dim, pack)
        self._output = PackedLinear(attention.o_proj, pack)
        self._before_feed_forward = _Norm(layer.post_attention_layernorm)
        self._gated = _GatedProduct((feed_forward.gate_proj, feed_forward.up_proj), pack)
        self._down = PackedLinear(feed_forward.down_proj, pack)

    def forward(
        self,
        hidden_states: torch.Tensor,
        *,
        position_embeddings: tuple[torch.Tensor, torch.Tensor],
        **_: Any,
    ) -> torch.Tensor:
        """The layer's result for hidden states [1, rows, width]; angles are [1, rows, head width]."""
        rows = hidden_states[0].contiguous()
        query, keys, values = self._heads(rows, self._before_attention, position_embeddings)
        answer = current_forward().attend(self.layer_index, query, keys, values, self.scoring)
        rows = self._output.added_to(rows, answer.flatten(1))
        return self._down.added_to(rows, self._gated(rows, self._before_feed_forward))[None]


class _Norm:
    """The weight and epsilon of an RMSNorm."""

    def __init__(self, norm: Any) -> None:
        self.weight: _Floats = norm.weight.detach().float().clone().numpy()
        self.epsilon = np.float32(norm.variance_epsilon if hasattr(norm, "variance_epsilon") else norm.eps)


class _GatedProduct:
    """SiLU(gate) * up, each pair of panels holding the same columns of both."""

    def __init__(self, linears: Sequence[nn.Linear], pack: Pack) -> None:
        self.num_outputs = linears[0].out_features
        self._weight = pack([each.weight.detach().numpy() for each in linears]).arrays
        biased = any(each.bias is not None for each in linears)
        self._bias = np.stack([_bias(each) for each in linears]) if biased else _NO_BIAS

    def __call__(self, rows: torch.Tensor, norm: _Norm) -> torch.Tensor:
        """Of the normalised rows, [rows, outputs]."""
        out = torch.empty(rows.shape[0], self.num_outputs)
        multiply_gated(
            rows.numpy(), norm.weight, norm.epsilon, self._weight, self._bias, out.numpy(), num_threads()
        )
        return out


class _HeadsProduct:
    """Queries, keys and values, each pair of panels holding columns of both halves of a head."""

    def __init__(self, linears: Sequence[nn.Linear], head_width: int, pack: Pack) -> None:
        self._head_width = head_width
        self._widths = [each.out_features for each in linears]
        self._pairs = np.array(_pairs(self._widths, head_width), dtype=np.int64)
        weight = np.concatenate([each.weight.detach().numpy() for each in linears])
        self._weight = pack([self._side(weight, right) for right in (False, True)]).arrays
        self._bias = _NO_BIAS
        if any(each.bias is not None for each in linears):
            bias = np.concatenate([_bias(each) for each in linears])[:, None]
            self._bias = np.stack([self._side(bias, right)[:, 0] for right in (False, True)])

    def __call__(
        self, rows: torch.Tensor, norm: _Norm, angles: tuple[torch.Tensor, torch.Tensor]
    ) -> list[torch.Tensor]:
        """Of the normalised rows, rotated by cosines and sines of angles: each [rows, heads, width]."""
        num_rows = rows.shape[0]
        out = torch.empty(num_rows * sum(self._widths))
        cosines, sines = (each[0].contiguous().numpy() for each in angles)
        multiply_rotated(
            rows.numpy(),
            norm.weight,
            norm.epsilon,
            self._weight,
            self._bias,
            self._pairs,
            cosines,
            sines,
            out.numpy(),
            num_threads(),
        )
        kinds = torch.split(out, [num_rows * width for width in self._widths])
        return [each.view(num_rows, -1, self._head_width) for each in kinds]

    def _side(self, weight: _Floats, right: bool) -> _Floats:
        """What the left or the right panels hold of a weight [outputs, ...], 16 outputs each."""
        side = np.zeros((len(self._pairs) * PANEL, weight.shape[1]), np.float32)
        for pair, (kind_start, _, left_column, right_column, valid, _) in enumerate(self._pairs.tolist()):
            first = kind_start + (right_column if right else left_column)
            side[pair * PANEL : pair * PANEL + valid] = weight[first : first + valid]
        return side


def _bias(linear: nn.Linear) -> _Floats:
    return np.zeros(linear.out_features, np.float32) if linear.bias is None else linear.bias.detach().numpy()


def _pairs(widths: list[int], head_width: int) -> list[tuple[int, int, int, int, int, int]]:
    """What `multiply_rotated` wants to know of each pair; values are not rotated."""
    half = head_width // 2
    pairs = []
    for kind, width in enumerate(widths):
        for head_start in range(0, width, head_width):
            for first in range(0, half, PANEL):
                left = head_start + first
                place = first if kind < 2 else -1
                pairs.append((sum(widths[:kind]), width, left, left + half, min(PANEL, half - first), place))
    return pairs
