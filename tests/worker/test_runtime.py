"""A whole worker as the process that it is, around a tiny model. All tests of this file share it."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion
from sqlalchemy import select

from models.job_store import JobStore
from models.signals import Signal, Signals
from models.tables.job import JobResult
from models.tables.worker import Window
from tests.services.postgres_server import PostgresServer
from tests.services.redis_server import RedisServer, ValkeyServer
from tests.worker.service import Service, prompts, service_settings
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


def talks(count: int) -> list[dict[str, object]]:
    return [
        {"messages": [{"role": "user", "content": f"Mill {number}?"}], "max_tokens": 5}
        for number in range(count)
    ]


def finish_thirty(service: Service) -> None:
    """Thirty jobs of both endpoints are answered, each once and at its first attempt."""
    ids = service.accept([*talks(15), *prompts(15, max_tokens=20)])

    service.await_finished(ids)

    jobs, bodies = service.jobs(ids), service.bodies(ids)
    assert {(job.status, job.attempt, job.token) for job in jobs} == {("succeeded", 1, 1)}
    for body in bodies[:15]:
        assert ChatCompletion.model_validate_json(body, strict=True).choices[0].message.role == "assistant"
    for job, body in zip(jobs[15:], bodies[15:], strict=True):
        usage = Completion.model_validate_json(body, strict=True).usage
        assert usage is not None
        assert (usage.completion_tokens, job.num_completion_tokens) == (20, 20)
        assert usage.prompt_tokens == job.num_prompt_tokens
        assert job.started_at is not None
        assert job.first_token_at is not None
        assert job.finished_at is not None
        assert job.started_at <= job.first_token_at <= job.finished_at
    with service.database.reading() as session:
        window_ids = {job.window_id for job in jobs}
        windows = session.scalars(select(Window).where(Window.id.in_(window_ids))).all()
    assert sum(window.num_jobs for window in windows) == 30
    assert all(window.num_jobs <= 8 for window in windows)
    eventually(lambda: service.depth() == 0)


@pytest.mark.usefixtures("worker")
def test_thirty_jobs_succeed(service: Service) -> None:
    finish_thirty(service)


def test_thirty_jobs_succeed_on_postgresql_and_redis(
    tmp_path: Path, tiny_model: Path, postgres_server: PostgresServer, redis_server: RedisServer
) -> None:
    redis_server.flush()
    url = postgres_server.create_database()
    settings = service_settings(tmp_path, tiny_model, redis_url=redis_server.url, database_url=url)

    with Service(settings) as service:
        worker = service.start_worker()
        service.await_workers(worker)
        finish_thirty(service)

        ids = service.accept(prompts(4, max_tokens=300))
        eventually(lambda: len(service.jobs(ids, "running", "succeeded")) == 4)
        worker.send_signal(signal.SIGTERM)

        # What can be finished within `drain_seconds` is.
        assert worker.wait(30) == 0
        assert {(job.status, job.attempt) for job in service.jobs(ids)} == {("succeeded", 1)}
    postgres_server.drop_database(url)


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
