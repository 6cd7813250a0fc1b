"""Waiting for what other processes and threads do, where there is no event to wait for."""

from __future__ import annotations

import time
from collections.abc import Callable

_LOOK_AGAIN_SECONDS = 0.02


def eventually(holds: Callable[[], object], *, within_seconds: float = 60.0) -> None:
    """Return as soon as something holds; AssertionError when it does not in time."""
    give_up_at = time.monotonic() + within_seconds
    while not holds():
        if time.monotonic() > give_up_at:
            raise AssertionError(f"did not come true within {within_seconds} s")
        time.sleep(_LOOK_AGAIN_SECONDS)
