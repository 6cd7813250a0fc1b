"""Which attention runs where: by what the machine can do and the network asks, found out by trial."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import structlog
import torch

from engine.attention.attention import Attention
from engine.attention.demand import LayerDemand
from engine.attention.reference import ReferenceForward
from engine.attention.trial import find_fault
from engine.cache import CacheFormat
from engine.cache_layout import HEAD_MAJOR, TOKEN_MAJOR
from engine.config import AttentionName
from engine.protocol import ModelRefused

_log = structlog.get_logger(__name__)


def choose_attention(
    demands: Iterable[LayerDemand],
    *,
    device: torch.device,
    dtype: torch.dtype,
    block_size: int,
    wished: AttentionName = "auto",
) -> Attention:
    """The fastest attention that serves all these layers, ready to run; why others do not is logged.

    ModelRefused with the reason if one was wished for and does not.
    """
    demands = list(demands)
    names = _by_speed(device, dtype) if wished == "auto" else (wished,)
    for name in names:
        try:
            attention = load_attention(name)
        except ImportError as error:
            fault: str | None = str(error)
        else:
            format = CacheFormat(attention.layout, dtype, device)
            fault = find_fault(attention, demands, format, block_size=block_size)
            if fault is None:
                _log.info("attention_chosen", attention=name, device=str(device), dtype=str(dtype))
                return attention
        _log.warning("attention_passed_over", attention=name, reason=fault)
    raise ModelRefused(f"attention {names[-1]} cannot serve it: {fault}")


def load_attention(name: AttentionName) -> Attention:
    """The attention of this name, ready to run; ImportError if the machine lacks what it needs."""
    return _LOADERS[name]()


def _by_speed(device: torch.device, dtype: torch.dtype) -> tuple[AttentionName, ...]:
    if device.type != "cpu":
        return ("varlen", "triton", "reference")
    return ("cpu", "reference") if dtype == torch.float32 else ("reference",)


# Imported where they are loaded, since each needs something that may be missing.
def _load_cpu() -> Attention:
    from engine.attention.cpu import CpuForward
    from engine.kernels import prepare_kernels

    prepare_kernels()
    return Attention("cpu", HEAD_MAJOR, CpuForward)


def _load_varlen() -> Attention:
    from engine.attention.varlen import VarlenForward, require_block_tables

    require_block_tables()
    return Attention("varlen", TOKEN_MAJOR, VarlenForward)


def _load_triton() -> Attention:
    from engine.attention.triton_forward import TritonForward

    return Attention("triton", TOKEN_MAJOR, TritonForward)


def _load_reference() -> Attention:
    return Attention("reference", TOKEN_MAJOR, ReferenceForward)


_LOADERS: dict[AttentionName, Callable[[], Attention]] = {
    "cpu": _load_cpu,
    "varlen": _load_varlen,
    "triton": _load_triton,
    "reference": _load_reference,
}
