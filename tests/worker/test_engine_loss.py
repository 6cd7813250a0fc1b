"""A worker whose engine is lost, as the process that it is: no job is lost, and no answer changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.fleet import Fleet
from tests.services.redis_server import ValkeyServer
from tests.worker.service import Service, prompts, service_settings
from tests.worker.waiting import eventually

#: Eight jobs, which draw their tokens by a seed; none is done by the step at which the engine is lost.
BODIES = prompts(8, max_tokens=40, seed=5, temperature=1.0)
LOSE_AT_STEP = 20


@pytest.fixture
def service(tmp_path: Path, tiny_model: Path, valkey_server: ValkeyServer) -> Iterator[Service]:
    valkey_server.flush()
    # Longer than a heartbeat is ever held up: what is claimed again was given back.
    settings = service_settings(tmp_path, tiny_model, redis_url=valkey_server.url, lease_seconds=60)
    with Service(settings) as found:
        yield found


def stats(service: Service) -> dict[str, float]:
    """What the one worker last said of itself."""
    (worker,) = Fleet(service.database).alive()
    told: dict[str, float] = json.loads(worker.stats or "{}")
    return told


def texts(service: Service, job_ids: list[str]) -> list[str]:
    return [json.loads(body)["choices"][0]["text"] for body in service.bodies(job_ids)]


def test_a_worker_goes_on_with_another_engine(service: Service) -> None:
    worker = service.start_worker(
        "tests.worker.lossy_worker", LOSE_AT_STEP=str(LOSE_AT_STEP), LOSE_BY="error", BUILDS="2"
    )
    service.await_workers(worker)
    ids = service.accept(BODIES)

    service.await_finished(ids)

    jobs = service.jobs(ids)
    assert {job.status for job in jobs} == {"succeeded"}
    # Whoever was in the engine was claimed twice; who came in later, once.
    assert {job.attempt for job in jobs} <= {1, 2}
    assert jobs[0].attempt == 2
    assert all(job.attempt == job.token for job in jobs)
    again = service.accept(BODIES)
    service.await_finished(again)
    assert texts(service, ids) == texts(service, again)
    assert worker.poll() is None
    eventually(lambda: service.depth() == 0)
    eventually(lambda: stats(service).get("num_running") == 0)
    told = stats(service)
    assert (told["num_lost_engines"], told["num_seats"]) == (1, 8)
    assert told["num_free_blocks"] + told["num_cached_blocks"] == told["num_blocks"]


@pytest.mark.parametrize(("lose_by", "num_builds"), [("error", "1"), ("device", "9")])
def test_a_worker_that_gets_no_other_engine_ends_and_the_next_one_goes_on(
    service: Service, lose_by: str, num_builds: str
) -> None:
    doomed = service.start_worker(
        "tests.worker.lossy_worker", LOSE_AT_STEP=str(LOSE_AT_STEP), LOSE_BY=lose_by, BUILDS=num_builds
    )
    service.await_workers(doomed)
    ids = service.accept(BODIES)

    # 2 would tell the supervisor that it is of no use to start another one.
    assert doomed.wait(180) == 1
    given_back = service.jobs(ids)
    assert {(job.status, job.owner) for job in given_back} == {("queued", None)}
    assert given_back[0].attempt == 1
    assert Fleet(service.database).alive() == []

    service.start_worker()
    service.await_finished(ids, within_seconds=180)
    jobs = service.jobs(ids)
    assert {job.status for job in jobs} == {"succeeded"}
    assert [job.attempt for job in jobs] == [job.attempt + 1 for job in given_back]
