"""Linear layers in 8-bit integers: faster, and no longer the model's own numbers. Opt-in.

Every row of the input gets a scale of its own and so does every output of the weight:

    result[row, out] = row_scale[row] * weight_scale[out] * sum of int8 * int8, in int32

The sums are exact and no scale is shared between rows, so a row's result does not depend on
what is computed beside it. The head stays in float32: there a small error would change words.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from engine.layer_fusing import fuse_layers
from engine.linear import PackedLinear
from engine.panels import int8_panels
from engine.protocol import ModelRefused


class Int8Linear(PackedLinear):
    """A linear layer with weights and inputs in int8, results in float32."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear, int8_panels)


def quantize_linears(network: nn.Module, *, head: nn.Module | None) -> None:
    """Replace the decoder layers that can be fused, then every linear layer but the head, by int8.

    Raises ModelRefused where there is none.
    """
    num_fused = fuse_layers(network, int8_panels)
    found = [entry for entry in _linears(network) if entry[2] is not head]
    if not num_fused and not found:
        raise ModelRefused("it has no linear layers to quantize; run it without quantize")
    for owner, name, linear in found:
        setattr(owner, name, Int8Linear(linear))


def _linears(network: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Linear]]:
    for owner in list(network.modules()):
        for name, child in list(owner.named_children()):
            if type(child) is nn.Linear:
                yield owner, name, child
