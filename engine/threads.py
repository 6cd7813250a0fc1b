"""How many threads our kernels use: those of torch, which they share."""

from __future__ import annotations

import numba
import torch


def num_threads() -> int:
    """Threads for the next kernel of the calling thread, no more than torch may use."""
    available: int = numba.config.NUMBA_NUM_THREADS
    return min(torch.get_num_threads(), available)
