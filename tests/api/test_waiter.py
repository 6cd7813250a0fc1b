from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from api.waiter import Waiter
from models.signals import Signal, Signals

#: When a wait looks again by itself: so late that on no machine a test takes as long.
RECHECK_SECONDS = 60.0


@pytest.fixture(autouse=True)
def rare_rechecks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.waiter.RECHECK_SECONDS", RECHECK_SECONDS)


@pytest.fixture
def waiter(redis_url: str) -> Iterator[Waiter]:
    waiter = Waiter(redis_url, "test", max_waiting=1)
    yield waiter
    waiter.close()


def test_a_job_that_finishes_while_it_is_looked_at_wakes_the_wait(waiter: Waiter) -> None:
    looks = 0

    def finishes_unseen() -> bool:
        nonlocal looks
        looks += 1
        if looks == 1:
            # Committed and told just after this look began, which therefore sees it unfinished.
            waiter._wake(["job_1"])
        return looks > 1

    began_at_seconds = time.monotonic()
    waiter.wait("job_1", seconds=90, is_finished=finishes_unseen)

    assert looks == 2
    assert time.monotonic() - began_at_seconds < RECHECK_SECONDS


def test_it_returns_after_its_time(waiter: Waiter) -> None:
    began_at_seconds = time.monotonic()

    waiter.wait("job_1", seconds=0.05, is_finished=lambda: False)

    assert 0.05 <= time.monotonic() - began_at_seconds < RECHECK_SECONDS
    assert waiter.num_waiting == 0


def test_it_returns_at_once_when_enough_wait_already(waiter: Waiter) -> None:
    inner: list[int] = []

    def another_comes() -> bool:
        waiter.wait("job_2", seconds=90, is_finished=lambda: False)
        inner.append(waiter.num_waiting)
        return True

    waiter.wait("job_1", seconds=90, is_finished=another_comes)

    assert inner == [1]
    assert waiter.num_waiting == 0


def test_nothing_of_a_wait_is_left_when_looking_fails(waiter: Waiter) -> None:
    def fails() -> bool:
        raise LookupError

    with pytest.raises(LookupError):
        waiter.wait("job_1", seconds=90, is_finished=fails)

    assert waiter.num_waiting == 0
    assert waiter._waiting == {}


def test_after_the_release_nobody_waits(waiter: Waiter) -> None:
    waiter.release()

    waiter.wait("job_1", seconds=90, is_finished=lambda: False)

    assert waiter.num_waiting == 0


def test_a_hint_about_jobs_that_nobody_waits_for_is_ignored(waiter: Waiter, redis_url: str) -> None:
    signals = Signals(redis_url, "test")
    looks: list[bool] = []

    def told_of_others() -> bool:
        if not looks:
            signals.send(Signal.DONE, ["job_2", "job_3"])
        looks.append(True)
        return False

    waiter.wait("job_1", seconds=1, is_finished=told_of_others)

    signals.close()
    assert len(looks) == 2
