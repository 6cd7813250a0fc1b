"""A worker's pulse in shared memory: which step it is in, and whether it is in one."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import c_bool, c_uint64


class Progress:
    """Written by the engine's thread, read by the heartbeat process."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        # Raw: each has one writer, and a reader that sees a value late reads it again soon.
        self._steps = context.RawValue(c_uint64, 0)
        self._in_step = context.RawValue(c_bool, False)

    @contextmanager
    def step(self) -> Iterator[None]:
        """Mark one step of the engine."""
        self._in_step.value = True
        try:
            yield
        finally:
            self._steps.value += 1
            self._in_step.value = False

    def sample(self) -> tuple[int, bool]:
        """Return how many steps have ended, and whether one is going on."""
        return int(self._steps.value), bool(self._in_step.value)


class HangDetector:
    """Tells a long step from one that will never end, by how long the count has stood still."""

    def __init__(self, max_step_seconds: float) -> None:
        self._max_step_seconds = max_step_seconds
        self._num_steps: int | None = None
        self._since = 0.0

    def is_hung(self, progress: tuple[int, bool], *, now: float) -> bool:
        """Say whether the step that is going on has lasted longer than `max_step_seconds`."""
        num_steps, in_step = progress
        if not in_step or num_steps != self._num_steps:
            self._num_steps = num_steps
            self._since = now
            return False
        return now - self._since > self._max_step_seconds
