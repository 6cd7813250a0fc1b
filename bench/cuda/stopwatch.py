"""Wall-clock seconds of work that a device does behind the host's back."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

_NUM_TRIES = 10
#: Repeats between two stamps, so that the last one's way back to the host counts for little.
_NUM_REPEATS = 5


def settled_seconds(device: torch.device) -> float:
    """A time stamp taken once the device has nothing left to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def median_seconds(work: Callable[[], object], device: torch.device) -> float:
    """Seconds that the work takes once; the median of some tries, of which the first does not count."""
    seconds = []
    for _ in range(1 + _NUM_TRIES):
        started = settled_seconds(device)
        for _ in range(_NUM_REPEATS):
            work()
        seconds.append((settled_seconds(device) - started) / _NUM_REPEATS)
    return statistics.median(seconds[1:])
