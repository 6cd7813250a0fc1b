"""Activations whose result for a number does not depend on where it lies in its tensor.

torch computes SiLU and GELU in whole vectors, and what is left over at the end of a tensor or
of a thread's share by another formula; so a row's last bits would depend on how many rows are
computed beside it. Here every number goes one way.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numba import njit, prange
from torch import nn
from transformers.activations import GELUActivation, GELUTanh, SiLUActivation

from engine.attention.cpu_kernel import FAST_MATH, exponential

_f32 = np.float32


@njit(parallel=True, fastmath=FAST_MATH, nogil=True, error_model="numpy")
def silu_rows(rows, out):  # type: ignore[no-untyped-def]
    """x / (1 + e^-x) of every number, row by row."""
    for row in prange(rows.shape[0]):
        for at in range(rows.shape[1]):
            number = rows[row, at]
            out[row, at] = number / (_f32(1.0) + exponential(min(-number, _f32(87.0))))


class RowwiseSilu(nn.Module):
    """SiLU, in float32 on the CPU."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """x / (1 + e^-x), of the same shape."""
        flat = rows.reshape(-1, rows.shape[-1]).contiguous()
        out = torch.empty_like(flat)
        silu_rows(flat.numpy(), out.numpy())
        return out.view(rows.shape)


class RowwiseGelu(nn.Module):
    """GELU by the error function, out of torch's operations that are the same everywhere."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """x (1 + erf(x / sqrt 2)) / 2, of the same shape."""
        return torch.erf(rows * math.sqrt(0.5)).add_(1).mul_(rows).mul_(0.5)


class RowwiseTanhGelu(nn.Module):
    """GELU by its approximation with tanh, likewise."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2, of the same shape."""
        inner = rows.pow(3).mul_(0.044715).add_(rows).mul_(math.sqrt(2 / math.pi))
        return inner.tanh_().add_(1).mul_(rows).mul_(0.5)


def use_rowwise_activations(network: nn.Module) -> None:
    """Replace every activation module that we have a row-wise form of."""
    for owner in list(network.modules()):
        for name, child in list(owner.named_children()):
            own = _rowwise(child)
            if own is not None:
                setattr(owner, name, own)


def _rowwise(module: nn.Module) -> nn.Module | None:
    match module:
        case nn.SiLU() | SiLUActivation():
            return RowwiseSilu()
        case nn.GELU(approximate="none") | GELUActivation():
            return RowwiseGelu()
        case nn.GELU(approximate="tanh") | GELUTanh():
            return RowwiseTanhGelu()
        case _:
            return None
