"""How a worker's end, orderly or not, looks from outside: no job is lost, and none is answered twice."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.fleet import Fleet
from models.tables.job import Lane
from tests.services.postgres_server import PostgresServer
from tests.services.redis_server import RedisServer, ValkeyServer
from tests.worker.service import Service, prompts, service_settings
from tests.worker.thirty_jobs import finish_thirty
from tests.worker.waiting import eventually

LEASE_SECONDS = 6.0


@pytest.fixture(scope="module")
def service(
    tmp_path_factory: pytest.TempPathFactory,
    tiny_model: Path,
    postgres_server: PostgresServer,
    redis_server: RedisServer,
) -> Iterator[Service]:
    """PostgreSQL and Redis, as many workers have them, and short leases."""
    redis_server.flush()
    url = postgres_server.create_database()
    folder = tmp_path_factory.mktemp("service")
    settings = service_settings(
        folder, tiny_model, redis_url=redis_server.url, database_url=url, lease_seconds=LEASE_SECONDS
    )
    with Service(settings) as found:
        yield found
    postgres_server.drop_database(url)


@pytest.fixture(scope="module")
def worker(service: Service) -> subprocess.Popen[bytes]:
    """A worker that outlives every test."""
    found = service.start_worker()
    service.await_workers(found)
    return found


@pytest.mark.usefixtures("worker")
def test_thirty_jobs_succeed(service: Service) -> None:
    finish_thirty(service)


@pytest.fixture
def sqlite_service(tmp_path: Path, tiny_model: Path, valkey_server: ValkeyServer) -> Iterator[Service]:
    """SQLite and Valkey, and no patience at the end."""
    valkey_server.flush()
    with Service(
        service_settings(tmp_path, tiny_model, redis_url=valkey_server.url, drain_seconds=0)
    ) as found:
        yield found


def test_sigterm_gives_back_what_is_unfinished(sqlite_service: Service) -> None:
    service = sqlite_service
    worker = service.start_worker()
    service.await_workers(worker)
    short, long = service.accept(prompts(4, max_tokens=3)), service.accept(prompts(20, max_tokens=900))
    eventually(lambda: len(service.jobs(short, "succeeded")) == 4 and service.jobs(long, "running"))

    worker.send_signal(signal.SIGTERM)

    assert worker.wait(60) == 0
    rest = service.jobs(long, "queued")
    # As if it had never been claimed, and already waiting for the next worker.
    assert {(job.attempt, job.owner, job.lease_until) for job in rest} == {(0, None, None)}
    done = service.jobs(short + long, "succeeded")
    assert len(rest) + len(done) == 24
    assert len(rest) >= 12
    assert {job.attempt for job in done} == {1}
    waiting = service.queue.job_ids(service.settings.served_name, Lane.STANDARD)
    assert waiting == {job.id for job in rest}
    assert Fleet(service.database).alive() == []


def test_after_sigkill_another_worker_finishes_everything(
    service: Service, worker: subprocess.Popen[bytes]
) -> None:
    doomed = service.start_worker()
    service.await_workers(doomed, worker)
    owners = {card.pid: card.id for card in Fleet(service.database).alive()}
    victim, survivor = owners[doomed.pid], owners[worker.pid]
    # The long ones take a while: a worker that has begun with some is still at it when it is killed.
    short, long = service.accept(prompts(20, max_tokens=20)), service.accept(prompts(16, max_tokens=400))
    ids = short + long

    def both_are_at_long_ones_and_some_is_done() -> bool:
        running = {job.owner for job in service.jobs(long, "running")}
        return {victim, survivor} <= running and len(service.jobs(ids, "succeeded")) > 0

    eventually(both_are_at_long_ones_and_some_is_done)
    doomed.kill()
    doomed.wait()
    done_before = service.jobs(ids, "succeeded")
    orphans = [job.id for job in service.jobs(ids, "running") if job.owner == victim]

    service.await_finished(ids)

    jobs = {job.id: job for job in service.jobs(ids)}
    assert {job.status for job in jobs.values()} == {"succeeded"}
    assert len(service.bodies(ids)) == len(ids)
    for job in done_before:
        assert (jobs[job.id].attempt, jobs[job.id].finished_at) == (1, job.finished_at)
    assert orphans
    assert {(jobs[id].attempt, jobs[id].token, jobs[id].owner) for id in orphans} == {(2, 2, survivor)}
    assert {job.attempt for job in jobs.values() if job.id not in orphans} == {1}
    eventually(lambda: service.depth() == 0)


def test_a_worker_that_was_stopped_past_its_leases_answers_each_job_once(
    service: Service, worker: subprocess.Popen[bytes]
) -> None:
    ids = service.accept(prompts(3, max_tokens=900))
    eventually(lambda: len(service.jobs(ids, "running")) == 3)

    worker.send_signal(signal.SIGSTOP)
    eventually(lambda: service.seconds_past_leases(ids) > 0)
    worker.send_signal(signal.SIGCONT)

    service.await_finished(ids)
    jobs = service.jobs(ids)
    assert [(job.status, job.error_code) for job in jobs] == [("succeeded", None)] * 3
    assert len(service.bodies(ids)) == 3
    eventually(lambda: service.depth() == 0)
