"""A whole worker as the process that it is, around a tiny model. All tests of this file share it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import psutil
import pytest

from models.job_store import JobStore
from models.signals import Signal, Signals
from models.tables.job import JobResult
from tests.services.redis_server import ValkeyServer
from tests.worker.service import Service, prompts, service_settings
from tests.worker.thirty_jobs import finish_thirty
from tests.worker.waiting import eventually


@pytest.fixture(scope="module")
def service(
    tmp_path_factory: pytest.TempPathFactory, tiny_model: Path, valkey_server: ValkeyServer
) -> Iterator[Service]:
    """SQLite and Valkey. Leases are long: what happens soon was not brought about by the heartbeat."""
    folder = tmp_path_factory.mktemp("service")
    valkey_server.flush()
    settings = service_settings(folder, tiny_model, redis_url=valkey_server.url, lease_seconds=30)
    with Service(settings) as found:
        yield found


@pytest.fixture(scope="module")
def worker(service: Service) -> subprocess.Popen[bytes]:
    found = service.start_worker()
    service.await_workers(found)
    return found


def ends(service: Service, job_ids: list[str]) -> list[datetime]:
    """When these jobs have ended."""
    return [job.finished_at for job in service.jobs(job_ids) if job.finished_at is not None]


@pytest.mark.usefixtures("worker")
def test_thirty_jobs_succeed(service: Service) -> None:
    finish_thirty(service)


@pytest.mark.usefixtures("worker")
def test_the_same_seed_gives_the_same_text(service: Service) -> None:
    body = prompts(1, max_tokens=12, seed=5, temperature=1.0)[0]

    ids = service.accept([body, body])
    service.await_finished(ids)

    first, second = (json.loads(body)["choices"][0]["text"] for body in service.bodies(ids))
    assert first == second


@pytest.mark.usefixtures("worker")
def test_a_prompt_over_the_context_fails_alone(service: Service) -> None:
    too_long = {"prompt": "The mill grinds. " * 1000, "max_tokens": 5}

    ids = service.accept([*prompts(3, max_tokens=5), too_long, *prompts(3, max_tokens=5)])
    service.await_finished(ids)

    jobs = service.jobs(ids)
    assert [job.status for job in jobs] == ["succeeded"] * 3 + ["failed"] + ["succeeded"] * 3
    assert (jobs[3].error_code, jobs[3].attempt) == ("context_length_exceeded", 1)
    with service.database.reading() as session:
        error = json.loads(session.get_one(JobResult, ids[3]).error or "")
    assert (error["code"], error["param"]) == ("context_length_exceeded", "body.prompt")


@pytest.mark.usefixtures("worker")
def test_a_cancelled_job_leaves_the_engine(service: Service) -> None:
    cancelled, companion = service.accept(prompts(2, max_tokens=900))
    eventually(lambda: len(service.jobs([cancelled, companion], "running")) == 2)
    signals = Signals(service.settings.redis_url or "", "test")

    JobStore(service.database).cancel(service.project_id, cancelled)
    signals.send(Signal.CANCEL, [cancelled])

    # Its entry goes when the engine has let it go; the companion, as long, is still at work.
    eventually(lambda: service.depth() == 1)
    assert [job.status for job in service.jobs([cancelled, companion])] == ["cancelled", "running"]
    service.await_finished([companion])
    assert service.jobs([cancelled])[0].num_completion_tokens is None
    signals.close()


@pytest.mark.usefixtures("worker")
def test_an_interactive_job_does_not_wait_for_bulk_jobs_that_have_every_seat(service: Service) -> None:
    bulk = service.accept(prompts(10, max_tokens=700), lane="bulk")
    eventually(lambda: len(service.jobs(bulk, "running")) == 8)

    urgent = service.accept(prompts(2, max_tokens=5), lane="interactive")
    service.await_finished([*bulk, *urgent])

    assert {job.status for job in service.jobs([*bulk, *urgent])} == {"succeeded"}
    assert max(ends(service, urgent)) < min(ends(service, bulk))
    # Those that yielded were claimed as before, and went on.
    assert {(job.attempt, job.num_completion_tokens) for job in service.jobs(bulk)} == {(1, 700)}


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("lane", ["standard", "bulk"])
def test_others_end_although_interactive_jobs_never_cease(service: Service, lane: str) -> None:
    urgent = service.accept(prompts(40, max_tokens=10), lane="interactive")
    others = service.accept(prompts(2, max_tokens=200), lane=lane)

    while len(service.jobs(others, "succeeded")) < 2:
        assert len(urgent) < 10_000, "they starve"
        if len(service.jobs(urgent[-40:], "queued")) < 20:
            urgent += service.accept(prompts(40, max_tokens=10), lane="interactive")

    assert service.jobs(urgent[-40:], "queued", "running")
    service.await_finished(urgent)


@pytest.mark.usefixtures("worker")
def test_a_redis_that_comes_back_empty_loses_no_job(service: Service, valkey_server: ValkeyServer) -> None:
    ids = service.accept(prompts(60, max_tokens=120))
    eventually(lambda: service.jobs(ids, "succeeded"))
    assert len(service.jobs(ids, "queued")) > 10

    valkey_server.flush()

    service.await_finished(ids)
    assert {(job.status, job.attempt) for job in service.jobs(ids)} == {("succeeded", 1)}


def test_its_heartbeat_process_has_no_torch(worker: subprocess.Popen[bytes]) -> None:
    def maps(pid: int) -> str:
        return Path(f"/proc/{pid}/maps").read_text()

    children = psutil.Process(worker.pid).children(recursive=True)

    assert children
    assert "libtorch" in maps(worker.pid)
    assert not [child for child in children if "libtorch" in maps(child.pid)]
