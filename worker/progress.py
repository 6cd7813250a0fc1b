"""A worker's progress in shared memory: which step it is in, and whether it is in one."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import c_uint64
from typing import NamedTuple


class Sample(NamedTuple):
    """Steps that have ended, and how many times the usual limit the present one may last; 0 between steps."""

    num_steps: int
    patience: int


class Progress:
    """Written by the engine's thread, read by the heartbeat process."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        # Raw: each has one writer, and a reader that sees a value late reads it again soon.
        self._steps = context.RawValue(c_uint64, 0)
        self._patience = context.RawValue(c_uint64, 0)

    @contextmanager
    def step(self, *, patience: int = 1) -> Iterator[None]:
        """Mark one step of the engine; it counts as hung after `patience` times the usual limit."""
        self._patience.value = patience
        try:
            yield
        finally:
            self._steps.value += 1
            self._patience.value = 0

    def sample(self) -> Sample:
        """Return how far the engine is now."""
        return Sample(int(self._steps.value), int(self._patience.value))


class HangDetector:
    """Tells a long step from one that will never end, by how long the count has stood still."""

    def __init__(self, max_step_seconds: float) -> None:
        self._max_step_seconds = max_step_seconds
        self._num_steps: int | None = None
        self._since = 0.0

    def is_hung(self, sample: Sample, *, now: float) -> bool:
        """Say whether the step that is going on has lasted longer than it may."""
        if not sample.patience or sample.num_steps != self._num_steps:
            self._num_steps = sample.num_steps
            self._since = now
            return False
        return now - self._since > sample.patience * self._max_step_seconds
