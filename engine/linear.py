"""Linear layers with their weights laid out once for our own product.

Two gains over `F.linear`: speed, most of all for few rows, and exactness: a row's result does
not depend on how many rows are computed beside it. Each shape is tried against `F.linear` before
it is used, and left to it where the two disagree.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import structlog
import torch
from torch import nn
from torch.nn import functional

from engine.panels import Pack, float_panels
from engine.product import multiply
from engine.threads import num_threads

#: Numbers of rows that a result must not depend on: every height of a tile, and some of more.
_TRIAL_ROWS = (*range(1, 14), 31)
#: Largest difference to F.linear, as a share of the largest result.
_TOLERANCE = 1e-5
_NOTHING = np.empty((0, 0), dtype=np.float32)

_log = structlog.get_logger(__name__)


class PackedLinear(nn.Module):
    """A linear layer with its weight in panels, for inference only."""

    def __init__(self, linear: nn.Linear, pack: Pack = float_panels) -> None:
        super().__init__()
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        # Not a parameter: nothing but the product below can read this layout.
        self._weight = pack([linear.weight.detach().numpy()]).arrays
        self.bias = None if linear.bias is None else linear.bias.detach().clone()
        self._start = _NOTHING if self.bias is None else self.bias.numpy()[None]

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """The product of rows [..., in_features] with the weight, [..., out_features]."""
        flat = rows.reshape(-1, self.in_features)
        return self._product(flat, self._start).view(*rows.shape[:-1], self.out_features)

    def added_to(self, start: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """`start` [rows, out_features] and the product of rows [rows, in_features], in a new tensor."""
        if self.bias is not None:
            start = start + self.bias
        return self._product(rows, start.contiguous().numpy())

    def _product(self, rows: torch.Tensor, start: npt.NDArray[np.float32]) -> torch.Tensor:
        out = torch.empty(rows.shape[0], self.out_features)
        if rows.shape[0]:
            multiply(rows.contiguous().numpy(), self._weight, start, out.numpy(), num_threads())
        return out


def pack_linears(network: nn.Module) -> bool:
    """Replace the network's linear layers where that is exact; whether nothing else multiplies.

    A weight shared with the embedding is packed as a second copy, any other one is freed.
    """
    # What holds for one weight holds for all of its shape.
    right: dict[tuple[int, int, bool], bool] = {}
    for owner, name, linear in list(_linears(network)):
        shape = (linear.out_features, linear.in_features, linear.bias is not None)
        if right.get(shape, True):
            packed = PackedLinear(linear)
            if shape not in right:
                right[shape] = is_right(packed, linear)
            if right[shape]:
                setattr(owner, name, packed)
    return not any(_multiplies(module) for module in network.modules())


def is_right(packed: PackedLinear, linear: nn.Linear) -> bool:
    """Whether rows come out as from `linear`, but for rounding, and each the same in every batch."""
    rows = torch.randn(_TRIAL_ROWS[-1], linear.in_features, generator=torch.Generator().manual_seed(1))
    expected = functional.linear(rows, linear.weight, linear.bias)
    whole = packed(rows)
    reason = ""
    if not (whole - expected).abs().max() <= _TOLERANCE * (1 + expected.abs().max()):
        reason = "another result"
    # The last rows, so that each row is tried at many places in its batch.
    elif not all(torch.equal(packed(rows[-count:]), whole[-count:]) for count in _TRIAL_ROWS):
        reason = "a row depends on its batch"
    if reason:
        _log.warning("linear_not_packed", shape=tuple(linear.weight.shape), reason=reason)
    return not reason


def _multiplies(module: nn.Module) -> bool:
    """Whether a module still has a matrix of its own that is not looked up row by row."""
    matrices = [weight for weight in module.parameters(recurse=False) if weight.dim() > 1]
    return bool(matrices) and not isinstance(module, nn.Embedding)


def _linears(network: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Linear]]:
    """Every plain linear layer with its owner and its name there; kinds derived from it are left."""
    for owner in network.modules():
        for name, child in owner.named_children():
            if type(child) is nn.Linear and child.weight.dtype == torch.float32:
                yield owner, name, child
