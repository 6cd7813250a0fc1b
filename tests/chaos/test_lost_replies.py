"""Scenarios 3, 4 and 19: what was asked is done, and the answer that says so is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.chaos.house import PATIENCE_SECONDS, House
from tests.chaos.proxy import Proxy
from tests.services.redis_server import ValkeyServer


@pytest.fixture
def valkey_proxy(valkey_server: ValkeyServer) -> Iterator[Proxy]:
    """A way to the Valkey of the house on which replies get lost."""
    with Proxy(valkey_server.socket, valkey_server.socket.with_name("proxy")) as proxy:
        yield proxy


def test_an_entry_whose_reply_was_lost_is_not_added_twice(house: House, valkey_proxy: Proxy) -> None:
    house.start_worker()
    api = house.start_api(redis_url=f"unix://{valkey_proxy.path}")
    # Known to hold all that was published, so that accept publishes by itself.
    house.queue.begin_epoch(house.settings.served_name)
    lost = valkey_proxy.lose_reply(rb"XADD")

    ids = house.ask(api)

    assert lost.is_set()
    house.check()
    assert house.num_runs(ids) == [1]


def test_a_second_entry_of_a_job_is_dropped(house: House) -> None:
    api = house.start_api()
    # Known to hold all that was published, so that accept publishes by itself.
    house.queue.begin_epoch(house.settings.served_name)
    ids = house.ask(api, 3)
    with house.redis() as client:
        (stream,) = client.scan_iter("*:s:*")
        first = [fields for _, fields in client.xrange(stream)]
        for fields in first:
            client.xadd(stream, fields)

    house.start_worker()

    house.check()
    assert [fields["r"] for fields in first] == ids
    assert house.num_runs(ids) == [1] * 3


def test_entries_whose_delivery_was_lost_come_again_and_the_others_go_on(
    make_house: Callable[..., House], valkey_proxy: Proxy
) -> None:
    # The others are done before it is over.
    house = make_house(lease_seconds=6.0)
    house.start_worker(redis_url=f"unix://{valkey_proxy.path}")
    api = house.start_api()
    lost = valkey_proxy.lose_reply(rb"XREADGROUP", holding=b"job_")
    ghosts = house.ask(api)
    assert lost.wait(PATIENCE_SECONDS)

    others = house.ask(api, 5)
    house.finish(others)

    # It lies with the worker as one of its own, unseen, until nobody has touched it for a lease.
    assert house.statuses(ghosts) == {"queued": 1}
    house.check()
    assert house.num_runs([*ghosts, *others]) == [1] * 6


class TestCommit:
    """A commit whose reply was lost: done, as far as the database goes."""

    @pytest.fixture
    def database_url(self, postgres_url: str) -> str:
        return postgres_url

    def test_a_result_that_was_stored_is_not_computed_again(
        self, house: House, postgres_proxy: Proxy, proxied_url: str
    ) -> None:
        house.start_worker(database_url=proxied_url)
        api = house.start_api()
        lost = postgres_proxy.lose_reply(rb"INSERT INTO job_results.*COMMIT")

        ids = house.ask(api, 3)

        assert lost.wait(PATIENCE_SECONDS)
        house.check()
        assert house.num_runs(ids) == [1] * 3
        assert {(job.attempt, job.token) for job in house.jobs(ids)} == {(1, 1)}

    def test_a_claim_that_the_worker_does_not_know_of_runs_out(
        self, make_house: Callable[..., House], postgres_proxy: Proxy, proxied_url: str
    ) -> None:
        # As long, a worker may be silent without being called dead.
        house = make_house(lease_seconds=5.0)
        house.start_worker(database_url=proxied_url)
        api = house.start_api()
        lost = postgres_proxy.lose_reply(rb"INSERT INTO windows.*COMMIT")

        ids = house.ask(api, 3)

        assert lost.wait(PATIENCE_SECONDS)
        house.check()
        assert house.num_runs(ids) == [1] * 3
        # Its worker lives, so that nobody is blamed.
        assert {(job.attempt, job.isolation) for job in house.jobs(ids)} == {(2, 0)}

    def test_a_client_that_was_told_to_come_again_finds_its_job(
        self, house: House, postgres_proxy: Proxy, proxied_url: str
    ) -> None:
        house.start_worker()
        api = house.start_api(database_url=proxied_url)
        lost = postgres_proxy.lose_reply(rb"INSERT INTO job_requests.*COMMIT")
        text = house.prompt()

        first = house.post(api, text, **{"Idempotency-Key": "mill"})
        second = house.post(api, text, **{"Idempotency-Key": "mill"})

        assert lost.is_set()
        assert (first.status_code, second.status_code) == (503, 202)
        assert int(first.headers["Retry-After"]) > 0
        house.check()
        assert house.num_runs([second.json()["id"]]) == [1]
