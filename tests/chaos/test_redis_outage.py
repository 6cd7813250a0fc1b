"""Scenarios 11 to 16: a Redis that restarts, forgets, is away, is full, and is slow."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from models.failpoints import JOB_POINT_NAMES
from models.tables.job import JobStatus
from tests.chaos.house import PATIENCE_SECONDS, House
from tests.chaos.proxy import Proxy
from tests.services.redis_server import LastingValkey
from tests.worker.waiting import eventually


@pytest.fixture
def redis_url(own_valkey: LastingValkey) -> str:
    return own_valkey.url


@pytest.fixture
def house(make_house: Callable[..., House]) -> House:
    """Leases are not to run out in these tests."""
    return make_house(lease_seconds=8.0)


def _await_running(house: House, ids: list[str]) -> None:
    eventually(lambda: house.statuses(ids)["running"] > 0, within_seconds=PATIENCE_SECONDS)


def test_a_restart_with_its_file_loses_nothing_and_doubles_nothing(
    house: House, own_valkey: LastingValkey
) -> None:
    with Proxy(own_valkey.socket, own_valkey.socket.with_name("proxy")) as proxy:
        house.start_worker(redis_url=f"unix://{proxy.path}")
        ids = house.ask(house.start_api(), 20, marks="[slow:1]")
        _await_running(house, ids)
        # Nobody reads or acknowledges any more until both counts are taken.
        proxy.cut()
        before = (house.entries(), house.num_pending())

        own_valkey.kill()
        own_valkey.start_again()

        assert (house.entries(), house.num_pending()) == before
        assert before[1] > 0
        proxy.mend()
        house.check()
    assert house.num_runs(ids) == [1] * 20
    assert {(job.attempt, job.token) for job in house.jobs(ids)} == {(1, 1)}


def test_at_no_step_of_a_job_does_it_matter_that_redis_forgets(
    house: House, own_valkey: LastingValkey
) -> None:
    """Every process pauses once at each step, and just then Redis loses all it holds."""
    pausing = ",".join(f"{name}:sleep=0.3:once" for name in JOB_POINT_NAMES)
    # A worker with one seat: there is something to do at every step, again and again.
    house.start_worker(fail=pausing, max_num_seqs=1)
    api = house.start_api(fail=pausing)
    forgotten: set[str] = set()

    def forget_at_the_next() -> bool:
        for name in JOB_POINT_NAMES:
            if name not in forgotten and house.num_hits(name):
                own_valkey.flush()
                forgotten.add(name)
        return len(forgotten) == len(JOB_POINT_NAMES)

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(lambda: [house.ask(api, 2) for _ in range(3)])
        eventually(forget_at_the_next, within_seconds=PATIENCE_SECONDS)
        ids = [job_id for batch in asking.result() for job_id in batch]

    house.check()
    assert house.num_runs(ids) == [1] * 6


@pytest.mark.parametrize("seconds", [3, pytest.param(60, marks=pytest.mark.slow)])
def test_without_redis_jobs_are_accepted_finished_and_shown(
    house: House, own_valkey: LastingValkey, seconds: int
) -> None:
    house.start_worker()
    api = house.start_api()
    ids = house.ask(api, 8, marks="[slow:3]")
    eventually(lambda: house.statuses(ids) == {"running": 8}, within_seconds=PATIENCE_SECONDS)

    own_valkey.kill()
    until = time.monotonic() + seconds
    answers = [house.post(api, house.prompt()).status_code]
    while time.monotonic() < until or house.statuses(ids) != {JobStatus.SUCCEEDED: 8}:
        answers += [api.http.get(path).status_code for path in _paths(ids[0])]
        if len(house.asked) < 200:
            answers.append(house.post(api, house.prompt()).status_code)
        assert time.monotonic() < until + PATIENCE_SECONDS

    # In flight and finished without it; what came meanwhile waits.
    assert set(answers) == {200, 202}
    assert house.num_runs(ids) == [1] * 8
    own_valkey.start_again()
    house.check()
    assert max(house.num_runs(list(house.asked))) == 1


def _paths(job_id: str) -> list[str]:
    return [f"/jobs/{job_id}", f"/jobs/{job_id}?wait=0.2", "/jobs", "/models"]


def test_a_full_redis_is_as_good_as_none_until_there_is_room(house: House, own_valkey: LastingValkey) -> None:
    house.start_worker()
    api = house.start_api()
    # Such a server takes no command that could make it larger, and all that make it smaller.
    with own_valkey.client() as client:
        client.config_set("maxmemory", "1")

        ids = house.ask(api, 5)
        assert house.entries() == 0
        assert house.statuses(ids) == {"queued": 5}

        client.config_set("maxmemory", "0")
    house.check()
    assert house.num_runs(ids) == [1] * 5


def test_answers_do_not_wait_for_a_slow_redis(house: House, own_valkey: LastingValkey) -> None:
    house.start_worker()
    together = threading.Barrier(8)

    with Proxy(own_valkey.socket, own_valkey.socket.with_name("proxy")) as proxy:
        api = house.start_api(redis_url=f"unix://{proxy.path}")
        proxy.hold()

        def post(text: str) -> int:
            together.wait()
            return house.post(api, text).status_code

        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(post, [house.prompt() for _ in range(8)]))

        # They came while every reply of Redis was still kept back.
        assert answers == [202] * 8
        proxy.release()
        house.check()
