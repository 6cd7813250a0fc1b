"""What the engine says of itself, handed from the thread that owns it to the one that reports."""

from __future__ import annotations

import time
from dataclasses import asdict

from engine.protocol import Engine

#: The engine's figures are read at most so often.
_LOOK_SECONDS = 1.0


class Gauge:
    """The engine's latest figures, whether there is an engine, and how many were lost."""

    def __init__(self) -> None:
        self._figures: dict[str, float] = {}
        self._num_lost_engines = 0
        self._look_at = 0.0

    def look(self, engine: Engine) -> None:
        """Read the figures of an engine, unless that was done a moment ago."""
        at = time.monotonic()
        if at < self._look_at:
            return
        self._look_at = at + _LOOK_SECONDS
        figures = asdict(engine.figures())
        # Replaced, never changed: another thread may be reading it.
        self._figures = {**figures.pop("blocks"), **figures}

    def lose(self) -> None:
        """The engine is gone, and its figures with it, until `look` sees another one."""
        self._num_lost_engines += 1
        self._figures = {}
        self._look_at = 0.0

    def read(self) -> dict[str, float]:
        """Return the figures by their names in `engine.figures`; none while there is no engine."""
        return {"num_lost_engines": self._num_lost_engines, **self._figures}
