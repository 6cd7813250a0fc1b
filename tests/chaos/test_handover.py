"""Scenario 37: a worker that is told to stop, with a window half full and with jobs in the engine."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from models.tables.job import JobStatus
from tests.chaos.house import House
from tests.worker.waiting import eventually


@pytest.fixture
def house(make_house: Callable[..., House]) -> House:
    """No lease is to run out here, also not while the heartbeat of a worker that has jobs already begins."""
    return make_house(lease_seconds=8.0)


def test_a_window_that_is_still_open_goes_to_another_worker(house: House) -> None:
    collecting = house.start_worker(max_wait_seconds=600.0)
    ids = house.ask(house.start_api(), 3)
    eventually(lambda: house.num_pending() == 3)
    other = house.start_worker()
    other_id = house.id_of(other)

    collecting.send(signal.SIGTERM)

    assert collecting.wait() == 0
    house.check()
    assert {(job.attempt, job.token, job.owner) for job in house.jobs(ids)} == {(1, 1, other_id)}
    assert house.num_runs(ids) == [1] * 3


def test_what_an_engine_has_begun_goes_to_another_worker_and_burns_no_attempt(house: House) -> None:
    api = house.start_api()
    running = house.start_worker(drain_seconds=0.0)
    ids = house.ask(api, 3, marks="[slow:4]")
    eventually(lambda: house.num_runs(ids) == [1] * 3)

    running.send(signal.SIGTERM)

    assert running.wait() == 0
    assert {(job.status, job.attempt, job.isolation) for job in house.jobs(ids)} == {("queued", 0, 0)}
    # They are in Redis already, for whoever comes first.
    assert house.entries() == 3
    other_id = house.id_of(house.start_worker())
    house.check()
    assert {(job.attempt, job.token, job.owner) for job in house.jobs(ids)} == {(1, 2, other_id)}


def test_what_an_engine_ends_in_time_stays_with_its_worker(house: House) -> None:
    api = house.start_api()
    running = house.start_worker(drain_seconds=60.0)
    running_id = house.id_of(running)
    ids = house.ask(api, 3, marks="[slow:4]")
    house.await_status(JobStatus.RUNNING, ids)

    running.send(signal.SIGTERM)

    assert running.wait() == 0
    house.check()
    assert {(job.status, job.attempt, job.owner) for job in house.jobs(ids)} == {("succeeded", 1, running_id)}
    assert house.num_runs(ids) == [1] * 3
