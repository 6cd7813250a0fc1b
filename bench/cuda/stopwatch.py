"""Wall-clock seconds of work that a device does behind the host's back."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

_NUM_WARM_UPS = 3
_NUM_TRIES = 10


def settled_seconds(device: torch.device) -> float:
    """A time stamp taken once the device has nothing left to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def median_seconds(work: Callable[[], object], device: torch.device) -> float:
    """The median of some repeats, after some that do not count."""
    for _ in range(_NUM_WARM_UPS):
        work()
    seconds = []
    for _ in range(_NUM_TRIES):
        started = settled_seconds(device)
        work()
        seconds.append(settled_seconds(device) - started)
    return statistics.median(seconds)
