from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable

import pytest

from engine.protocol import DeviceLost, EngineLost
from tests.worker.fake_engine import FakeEngine
from worker.engine_keeper import EngineKeeper
from worker.progress import Progress, Sample


class Builder:
    """Builds engines, but for the tries that are to fail, the first being 1."""

    def __init__(self, failures: dict[int, Exception] | None = None) -> None:
        self.failures = failures or {}
        self.num_tries = 0

    def __call__(self) -> FakeEngine:
        self.num_tries += 1
        if self.num_tries in self.failures:
            raise self.failures[self.num_tries]
        return FakeEngine()


class Pauses(threading.Event):
    """Notes how long it was waited for, and waits for nothing."""

    def __init__(self, stop_at: int | None = None) -> None:
        super().__init__()
        self.seconds: list[float | None] = []
        self._stop_at = stop_at

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout)
        return len(self.seconds) == self._stop_at


def keeper_of(build: Callable[[], FakeEngine], *, clock: Callable[[], float] = lambda: 0.0) -> EngineKeeper:
    return EngineKeeper(build, progress=Progress(), first_pause_seconds=0.5, clock=clock)


def test_a_lost_engine_is_gone_before_the_next_one_is_built() -> None:
    alive: list[bool] = []
    built: list[weakref.ref[FakeEngine]] = []

    def build() -> FakeEngine:
        # Not a matter for the collector of cycles: memory must be free at once.
        alive.extend(each() is not None for each in built)
        engine = FakeEngine()
        built.append(weakref.ref(engine))
        return engine

    gc.disable()
    try:
        keeper = keeper_of(build)
        assert keeper.replace(Pauses())
    finally:
        gc.enable()

    assert alive == [False]
    assert keeper.engine is built[1]()


def test_pauses_grow_with_each_loss_and_failed_rebuild() -> None:
    pauses = Pauses()
    build = Builder({3: MemoryError("no memory for the cache"), 4: MemoryError("no memory for the cache")})
    keeper = keeper_of(build)

    assert keeper.replace(pauses)
    assert keeper.replace(pauses)

    assert build.num_tries == 5
    assert pauses.seconds == [0.5, 1.0, 2.0, 4.0]


def test_the_sixth_loss_in_ten_minutes_is_one_too_many() -> None:
    keeper = keeper_of(Builder())
    pauses = Pauses()
    for _ in range(5):
        assert keeper.replace(pauses)

    with pytest.raises(EngineLost, match="lost 6 times in 600 s"):
        keeper.replace(pauses)


def test_a_build_that_always_fails_ends_the_tries() -> None:
    build = Builder({number: MemoryError("no memory for the cache") for number in range(2, 20)})

    with pytest.raises(EngineLost):
        keeper_of(build).replace(Pauses())

    assert build.num_tries == 6


def test_losses_long_ago_do_not_count() -> None:
    at = 0.0
    keeper = keeper_of(Builder(), clock=lambda: at)
    pauses = Pauses()
    for _ in range(20):
        assert keeper.replace(pauses)
        at += 301.0

    assert pauses.seconds == [0.5, *[1.0] * 19]


def test_a_worker_that_is_told_to_stop_waits_for_no_engine() -> None:
    build = Builder()
    keeper = keeper_of(build)

    assert not keeper.replace(Pauses(stop_at=1))

    assert build.num_tries == 1


def test_a_device_that_is_lost_over_a_build_is_not_tried_again() -> None:
    build = Builder({2: DeviceLost("CUDA error")})

    with pytest.raises(DeviceLost):
        keeper_of(build).replace(Pauses())

    assert build.num_tries == 2


def test_a_rebuild_counts_as_a_long_step_so_that_one_without_end_is_noticed() -> None:
    progress = Progress()
    seen: list[Sample] = []

    def build() -> FakeEngine:
        seen.append(progress.sample())
        return FakeEngine()

    keeper = EngineKeeper(build, progress=progress)
    keeper.replace(Pauses())

    assert seen == [Sample(0, 0), Sample(0, 5)]
    assert progress.sample() == Sample(1, 0)
