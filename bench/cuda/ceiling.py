"""What the device can do at the most, measured on it: moving bytes, and multiplying matrices."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from bench.cuda.stopwatch import median_seconds


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Bytes read or written per second in a large copy, and operations per second in a large product."""

    bytes_per_second: float
    flop_per_second: float


def measure_ceiling(device: torch.device, dtype: torch.dtype) -> Ceiling:
    """Copy what no cache holds, and multiply matrices that fill the device."""
    is_cuda = device.type == "cuda"
    return Ceiling(
        bytes_per_second=_bytes_per_second(device, num_bytes=2**31 if is_cuda else 2**24),
        flop_per_second=_flop_per_second(device, dtype, size=8192 if is_cuda else 256),
    )


def _bytes_per_second(device: torch.device, *, num_bytes: int) -> float:
    source = torch.ones(num_bytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * num_bytes / median_seconds(lambda: target.copy_(source), device)


def _flop_per_second(device: torch.device, dtype: torch.dtype, *, size: int) -> float:
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    return 2.0 * size**3 / median_seconds(lambda: torch.mm(left, right), device)
