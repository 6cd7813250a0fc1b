"""How a worker's end, orderly or not, looks from outside: no job is lost, and none is answered twice."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from models.fleet import Fleet
from models.tables.job import Lane
from tests.services.redis_server import ValkeyServer
from tests.worker.service import Service, prompts, service_settings
from tests.worker.waiting import eventually

LEASE_SECONDS = 2.0


@pytest.fixture
def make_service(
    tmp_path: Path, tiny_model: Path, valkey_server: ValkeyServer
) -> Iterator[Callable[..., Service]]:
    services = []

    def make(**given: Any) -> Service:
        valkey_server.flush()
        settings = service_settings(
            tmp_path, tiny_model, redis_url=valkey_server.url, lease_seconds=LEASE_SECONDS, **given
        )
        services.append(Service(settings))
        return services[-1]

    yield make
    for service in services:
        service.__exit__()


def test_sigterm_gives_back_what_is_unfinished(make_service: Callable[..., Service]) -> None:
    service = make_service(drain_seconds=0)
    worker = service.start_worker()
    service.await_workers(worker)
    short, long = service.accept(prompts(4, max_tokens=3)), service.accept(prompts(20, max_tokens=900))
    eventually(lambda: len(service.jobs(short, "succeeded")) == 4 and service.jobs(long, "running"))

    worker.send_signal(signal.SIGTERM)

    assert worker.wait(20) == 0
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


def test_after_sigkill_another_worker_finishes_everything(make_service: Callable[..., Service]) -> None:
    service = make_service()
    workers = [service.start_worker(), service.start_worker()]
    service.await_workers(*workers)
    owners = {card.pid: card.id for card in Fleet(service.database).alive()}
    victim, survivor = (owners[worker.pid] for worker in workers)
    ids = service.accept(prompts(60, max_tokens=200))

    def both_work_and_some_is_done() -> bool:
        running = {job.owner for job in service.jobs(ids, "running")}
        return {victim, survivor} <= running and len(service.jobs(ids, "succeeded")) > 0

    eventually(both_work_and_some_is_done)
    workers[0].kill()
    workers[0].wait()
    done_before = service.jobs(ids, "succeeded")
    orphans = [job.id for job in service.jobs(ids, "running") if job.owner == victim]

    service.await_finished(ids)

    jobs = {job.id: job for job in service.jobs(ids)}
    assert {job.status for job in jobs.values()} == {"succeeded"}
    assert service.count_results() == len(ids)
    for job in done_before:
        assert (jobs[job.id].attempt, jobs[job.id].finished_at) == (1, job.finished_at)
    assert orphans
    assert {(jobs[id].attempt, jobs[id].token, jobs[id].owner) for id in orphans} == {(2, 2, survivor)}
    assert {job.attempt for job in jobs.values() if job.id not in orphans} == {1}
    eventually(lambda: service.depth() == 0)


def test_a_worker_that_was_stopped_past_its_leases_answers_each_job_once(
    make_service: Callable[..., Service],
) -> None:
    service = make_service()
    worker = service.start_worker()
    service.await_workers(worker)
    ids = service.accept(prompts(3, max_tokens=900))
    eventually(lambda: len(service.jobs(ids, "running")) == 3)

    worker.send_signal(signal.SIGSTOP)
    eventually(lambda: service.seconds_past_leases(ids) > 0)
    worker.send_signal(signal.SIGCONT)

    service.await_finished(ids)
    jobs = service.jobs(ids)
    assert [(job.status, job.error_code) for job in jobs] == [("succeeded", None)] * 3
    assert service.count_results() == 3
    eventually(lambda: service.depth() == 0)
