"""Scenarios 25 and 26: cancels and deadlines that come at any moment of a job's life."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from models.tables.job import JobStatus
from tests.acceptance.service import Api
from tests.chaos.house import House


@pytest.fixture
def database_url(any_database_url: str) -> str:
    return any_database_url


def cancel(api: Api, job_id: str) -> int:
    """Cancel a job and return the HTTP status of the answer."""
    return api.http.post(f"/jobs/{job_id}/cancel").status_code


def race(house: House, *, num_jobs: int, seed: int) -> None:
    """Cancel half of the jobs while they are queued, running or done, in any order."""
    order = random.Random(seed)
    api = house.start_api()
    ids = house.ask(api, num_jobs, marks="[slow:0.1][tokens:3]")
    before, meanwhile = ids[:4], order.sample(ids[4:], num_jobs // 2)
    assert {cancel(api, job_id) for job_id in before} == {httpx2.codes.OK}
    house.start_worker()
    with ThreadPoolExecutor(4) as pool:
        codes = dict(zip(meanwhile, pool.map(lambda job_id: cancel(api, job_id), meanwhile), strict=True))

    house.check(may_end={JobStatus.SUCCEEDED, JobStatus.CANCELLED})

    assert set(codes.values()) <= {httpx2.codes.OK, httpx2.codes.CONFLICT}
    assert house.num_runs(before) == [0] * len(before)
    cancelled = {*before, *(job_id for job_id, code in codes.items() if code == httpx2.codes.OK)}
    for job in house.jobs(ids):
        assert job.status == ("cancelled" if job.id in cancelled else "succeeded")
    # Again: what was cancelled stays so, and what has ended cannot be.
    assert {cancel(api, job_id) for job_id in cancelled} == {httpx2.codes.OK}
    assert {cancel(api, job_id) for job_id in ids if job_id not in cancelled} <= {httpx2.codes.CONFLICT}


def test_a_cancel_is_final_or_too_late(house: House) -> None:
    race(house, num_jobs=32, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_cancel_is_final_or_too_late_whatever_the_order(house: House, seed: int) -> None:
    race(house, num_jobs=200, seed=seed)


def test_a_cancelled_job_leaves_the_engine_though_it_would_run_for_long(house: House) -> None:
    api = house.start_api()
    house.start_worker()
    ids = house.ask(api, 8, marks="[slow:600]")
    house.await_status(JobStatus.RUNNING, ids)

    assert {cancel(api, job_id) for job_id in ids} == {httpx2.codes.OK}

    # All seats are taken until they have left.
    later = house.ask(api, 8)
    house.check(may_end={JobStatus.SUCCEEDED, JobStatus.CANCELLED})
    assert house.statuses(ids) == {"cancelled": 8}
    assert house.statuses(later) == {"succeeded": 8}


def test_a_job_that_runs_past_its_deadline_expires(make_house: Callable[..., House]) -> None:
    # Its lease is not to run out, nor its deadline to pass before it runs, however busy the machine.
    house = make_house(lease_seconds=8.0)
    api = house.start_api()
    house.start_worker()
    text = house.prompt("[slow:600]")
    job_id = api.submit({**house.body(text), "deadline": 6})["id"]
    house.asked[job_id] = text
    house.await_status(JobStatus.RUNNING, [job_id])

    house.check(may_end={JobStatus.EXPIRED})

    (job,) = house.jobs([job_id])
    assert (job.error_code, job.attempt) == ("deadline_exceeded", 1)
    assert job.finished_at is not None
    assert job.deadline_at is not None
    assert job.finished_at >= job.deadline_at
    assert house.num_runs([job_id]) == [1]
