"""Matrix products with weights laid out once for the CPU, by oneDNN.

Two gains over `F.linear`: speed, most of all for few rows, and exactness: a row's result does
not depend on how many rows are computed beside it. torch offers this to its own compiler only,
so it is used behind a check and given up where the check fails.
"""

from __future__ import annotations

from collections.abc import Iterator

import structlog
import torch
from torch import nn
from torch.nn import functional

#: Numbers of rows at which a row's result must stay the same: all small ones, then some.
_TRIAL_ROWS = (*range(1, 65), 96, 127, 128, 129, 192, 255, 320)
#: The same for weights so wide that every trial would take long.
_WIDE_TRIAL_ROWS = (1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 48, 63, 64)
_WIDE = 8192
#: Rows that a single one may have to be computed as, so that it comes out as in a batch.
_MOST_MIN_ROWS = 4
#: Largest difference to F.linear, as a share of the largest result.
_TOLERANCE = 1e-5

_log = structlog.get_logger(__name__)


class PackedLinear(nn.Module):
    """A linear layer with its weight in oneDNN's own layout, float32, for inference only.

    Fewer than `min_rows` rows are computed as so many: a single one may take another path.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.min_rows = 1
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        self.bias = None if linear.bias is None else linear.bias.detach()
        # Not a parameter: nothing but the product below can read this layout.
        self._packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), None)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """The product of rows [..., in_features] with the weight, [..., out_features]."""
        flat = rows.reshape(-1, self.in_features)
        num_rows = flat.shape[0]
        if not num_rows:
            return rows.new_zeros(*rows.shape[:-1], self.out_features)
        if num_rows < self.min_rows:
            flat = torch.cat([flat, flat[:1].expand(self.min_rows - num_rows, -1)])
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            flat, self._packed, self.bias, "none", [], ""
        )
        return product[:num_rows].view(*rows.shape[:-1], self.out_features)


def pack_linears(network: nn.Module) -> bool:
    """Replace the network's linear layers where that is exact; whether nothing else multiplies.

    A weight shared with the embedding is packed as a second copy, any other one is freed.
    """
    # What holds for one weight holds for all of its shape.
    min_rows: dict[tuple[int, int, bool], int | None] = {}
    for owner, name, linear in list(_linears(network)):
        shape = (linear.out_features, linear.in_features, linear.bias is not None)
        packed = _packed(linear) if min_rows.get(shape, 1) else None
        if shape not in min_rows:
            min_rows[shape] = None if packed is None else find_min_rows(packed, linear)
        smallest = min_rows[shape]
        if packed is not None and smallest is not None:
            packed.min_rows = smallest
            setattr(owner, name, packed)
    return not any(_multiplies(module) for module in network.modules())


def find_min_rows(packed: PackedLinear, linear: nn.Linear) -> int | None:
    """The fewest rows from which on a row's result is always the same; None if there are none.

    None as well if it is not the result of `linear`, but for rounding.
    """
    trials = _WIDE_TRIAL_ROWS if linear.out_features > _WIDE else _TRIAL_ROWS
    rows = torch.randn(trials[-1], linear.in_features, generator=torch.Generator().manual_seed(1))
    expected = functional.linear(rows, linear.weight, linear.bias)
    whole = packed(rows)
    if not (whole - expected).abs().max() <= _TOLERANCE * (1 + expected.abs().max()):
        _log.warning("linear_not_packed", shape=tuple(linear.weight.shape), reason="another result")
        return None
    # The last rows, so that each row is tried at many places in its batch.
    unsteady = [count for count in trials if not torch.equal(packed(rows[-count:]), whole[-count:])]
    smallest = max(unsteady, default=0) + 1
    if smallest > _MOST_MIN_ROWS:
        _log.warning(
            "linear_not_packed",
            shape=tuple(linear.weight.shape),
            reason=f"a row depends on its batch at {smallest - 1} rows",
        )
        return None
    return smallest


def _packed(linear: nn.Linear) -> PackedLinear | None:
    try:
        return PackedLinear(linear)
    except (RuntimeError, AttributeError, NotImplementedError) as error:
        _log.warning("linear_not_packed", reason=str(error))
        return None


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
