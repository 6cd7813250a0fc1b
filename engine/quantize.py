"""Linear layers in 8-bit integers: faster, and no longer the model's own numbers. Opt-in.

Every row of the input gets a scale of its own and so does every output of the weight:

    result[row, out] = row_scale[row] * weight_scale[out] * sum of int8 * int8, in int32

The sums are exact and no scale is shared between rows, so a row's result does not depend on
what is computed beside it. The head stays in float32: there a small error would change words.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numba import njit, prange
from torch import nn

from engine.protocol import ModelRefused

_f32 = np.float32
_LARGEST = _f32(127.0)


@njit(parallel=True, nogil=True, error_model="numpy")
def quantize_rows(rows, integers, scales):  # type: ignore[no-untyped-def]
    """Round every row to int8 by a scale of its own, the row's largest number over 127."""
    for row in prange(rows.shape[0]):
        largest = _f32(0.0)
        for at in range(rows.shape[1]):
            largest = max(largest, abs(rows[row, at]))
        scales[row] = largest / _LARGEST
        factor = _LARGEST / largest if largest > 0 else _f32(0.0)
        for at in range(rows.shape[1]):
            integers[row, at] = np.int8(np.floor(rows[row, at] * factor + _f32(0.5)))


@njit(parallel=True, nogil=True, error_model="numpy")
def scale_back(products, row_scales, weight_scales, out):  # type: ignore[no-untyped-def]
    """Turn int32 sums into float32 results."""
    for row in prange(products.shape[0]):
        for at in range(products.shape[1]):
            out[row, at] = _f32(products[row, at]) * weight_scales[at] * row_scales[row]


class Int8Linear(nn.Module):
    """A linear layer with weights and inputs in int8, results in float32."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        self.bias = None if linear.bias is None else linear.bias.detach()
        integers, self._scales = _rounded(linear.weight.detach())
        self._integers = integers.t()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """About the product of rows [..., in_features] with the weight, [..., out_features]."""
        flat = rows.reshape(-1, self.in_features).contiguous()
        out = rows.new_empty(flat.shape[0], self.out_features)
        if flat.shape[0]:
            integers, scales = _rounded(flat)
            products = torch._int_mm(integers, self._integers)
            scale_back(products.numpy(), scales.numpy(), self._scales.numpy(), out.numpy())
        if self.bias is not None:
            out += self.bias
        return out.view(*rows.shape[:-1], self.out_features)


def quantize_linears(network: nn.Module, *, head: nn.Module | None) -> None:
    """Replace every plain linear layer but the head by one in int8.

    Raises ModelRefused where there is none, or where torch's integer product is not exact.
    """
    found = [entry for entry in _linears(network) if entry[2] is not head]
    if not found:
        raise ModelRefused("it has no linear layers to quantize; run it without quantize")
    _check_product()
    for owner, name, linear in found:
        setattr(owner, name, Int8Linear(linear))


def _linears(network: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Linear]]:
    for owner in list(network.modules()):
        for name, child in list(owner.named_children()):
            if type(child) is nn.Linear:
                yield owner, name, child


def _rounded(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    integers, scales = torch.empty(rows.shape, dtype=torch.int8), torch.empty(rows.shape[0])
    quantize_rows(rows.numpy(), integers.numpy(), scales.numpy())
    return integers, scales


def _check_product() -> None:
    """Some processors add pairs of products in 16 bits, which large ones overflow."""
    rows = torch.full((3, 256), 127, dtype=torch.int8)
    rows[1] = -127
    try:
        products = torch._int_mm(rows, rows.t())
    except RuntimeError as error:
        raise ModelRefused(f"this torch cannot multiply integers ({error}); run without quantize") from error
    if not torch.equal(products.double(), rows.double() @ rows.double().t()):
        raise ModelRefused("this processor's integer products overflow; run without quantize")
