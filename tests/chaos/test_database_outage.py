"""Scenarios 17 and 18: a database that is away when a job comes in, and when its result is to be stored."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from models.tables.job import JobStatus
from tests.chaos.house import PATIENCE_SECONDS, House
from tests.chaos.proxy import Proxy
from tests.worker.waiting import eventually


@pytest.fixture
def database_url(postgres_url: str) -> str:
    return postgres_url


def test_what_cannot_be_stored_is_not_accepted(house: House, postgres_proxy: Proxy, proxied_url: str) -> None:
    house.start_worker()
    api = house.start_api(database_url=proxied_url)
    postgres_proxy.cut()

    refused = house.post(api, house.prompt())
    alive = api.http.get("../healthz")
    ready = api.http.get("../readyz")

    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "database_unavailable")
    assert int(refused.headers["Retry-After"]) > 0
    assert (alive.status_code, ready.status_code) == (200, 503)
    assert (house.jobs(), house.entries()) == ([], 0)
    postgres_proxy.mend()
    assert house.post(api, house.prompt()).status_code == 202
    house.check()


def test_a_database_lost_before_the_commit_leaves_nothing(
    house: House, postgres_proxy: Proxy, proxied_url: str
) -> None:
    house.start_worker()
    # It waits there until the database is gone.
    api = house.start_api(fail="accept_before_commit:sleep=3:once", database_url=proxied_url)

    with house.meanwhile(lambda: house.post(api, house.prompt())) as posting:
        house.await_hit("accept_before_commit")
        postgres_proxy.cut()

    assert posting.result().status_code == 503
    postgres_proxy.mend()
    assert (house.jobs(), house.entries()) == ([], 0)
    assert house.post(api, house.prompt()).status_code == 202
    house.check()


@pytest.mark.parametrize(
    "num_leases", [2, pytest.param(0.25, marks=pytest.mark.slow), pytest.param(15, marks=pytest.mark.slow)]
)
def test_a_result_that_cannot_be_stored_is_kept(
    make_house: Callable[..., House], postgres_proxy: Proxy, proxied_url: str, num_leases: float
) -> None:
    house = make_house(lease_seconds=3.0)
    # It waits there until the database is gone.
    worker = house.start_worker(fail="publish_before_commit:sleep=3:once", database_url=proxied_url)
    api = house.start_api()
    ids = house.ask(api)
    house.await_hit("publish_before_commit")

    postgres_proxy.cut()
    eventually(lambda: "publish_delayed" in worker.log, within_seconds=PATIENCE_SECONDS)
    later = house.ask(api, 3)
    seconds = num_leases * house.settings.lease_seconds
    eventually(lambda: house.seconds_since_start(ids) > seconds, within_seconds=seconds + PATIENCE_SECONDS)
    # Nothing new is taken meanwhile.
    assert house.statuses(later) == {JobStatus.QUEUED: 3}
    postgres_proxy.mend()

    # The worker lived all the time: nobody is to blame, and nothing is computed again.
    house.check()
    assert {(job.attempt, job.isolation) for job in house.jobs([*ids, *later])} == {(1, 0)}
    assert house.num_runs([*ids, *later]) == [1] * 4
