"""Which attention runs where."""

from __future__ import annotations

from engine.attention.cpu import CpuForward
from engine.attention.interface import Attention
from engine.kernels import prepare_kernels


def choose_attention() -> Attention:
    """The fastest exact attention of this machine, ready to run."""
    prepare_kernels()
    return CpuForward
