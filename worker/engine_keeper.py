"""Keeps an engine in the worker: builds it, and builds another one when it was lost."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

import structlog

from engine.protocol import DeviceLost, Engine, EngineLost
from worker.progress import Progress

_log = structlog.get_logger()

#: With more losses than this within so many seconds, failed rebuilds among them, no more is tried.
MAX_LOSSES = 5
_LOSSES_SECONDS = 600.0
#: A new engine may take so many times as long as a step: its graphs are recorded, its largest step tried.
_BUILD_PATIENCE = 5
#: Pause before the first rebuild; each further loss within that time doubles it.
_FIRST_PAUSE_SECONDS = 0.5


class EngineKeeper:
    """Has the one engine of a worker. For the engine's thread alone."""

    def __init__(
        self,
        build: Callable[[], Engine],
        *,
        progress: Progress,
        first_pause_seconds: float = _FIRST_PAUSE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.engine = build()
        self._build = build
        self._progress = progress
        self._first_pause_seconds = first_pause_seconds
        self._clock = clock
        self._lost_at: deque[float] = deque()

    def replace(self, stopping: threading.Event) -> bool:
        """Build an engine in the place of one that was lost; False if told to stop meanwhile.

        Raises EngineLost when that happens too often, and DeviceLost when this process cannot help it.
        """
        # The cache of the old one goes first: there may be no memory for two.
        del self.engine
        while True:
            if stopping.wait(self._next_pause()):
                return False
            try:
                # One that never ends is noticed like a step that never ends.
                with self._progress.step(patience=_BUILD_PATIENCE):
                    self.engine = self._build()
            except DeviceLost:
                raise
            except Exception:
                _log.exception("engine_not_rebuilt", num_losses=len(self._lost_at))
            else:
                _log.info("engine_rebuilt", num_losses=len(self._lost_at))
                return True

    def _next_pause(self) -> float:
        """Count a loss, and say how long to wait before the next engine."""
        at = self._clock()
        while self._lost_at and at - self._lost_at[0] > _LOSSES_SECONDS:
            self._lost_at.popleft()
        self._lost_at.append(at)
        if len(self._lost_at) > MAX_LOSSES:
            raise EngineLost(f"the engine was lost {len(self._lost_at)} times in {_LOSSES_SECONDS:g} s")
        return float(self._first_pause_seconds * 2 ** (len(self._lost_at) - 1))
