"""Waiting for what no event tells of."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_LOOK_AGAIN_SECONDS = 0.02


def eventually(condition: Callable[[], bool], *, what: str, timeout_seconds: float = 180.0) -> None:
    """Return once the condition holds; TimeoutError naming `what` if it does not in time."""
    give_up_at = time.monotonic() + timeout_seconds
    never = threading.Event()
    while not condition():
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"not within {timeout_seconds} s: {what}")
        never.wait(_LOOK_AGAIN_SECONDS)
