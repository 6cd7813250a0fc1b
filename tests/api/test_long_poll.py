from __future__ import annotations

import statistics
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from flask import Flask

from api.app import create_app
from api.services import services
from models.settings import Settings
from models.tables.job import JobStatus
from tests.api.client import Client
from tests.api.conftest import KEY
from tests.api.worker import HandWorker
from tests.services.redis_server import ValkeyServer
from tests.worker.waiting import eventually


def poll(threads: ThreadPoolExecutor, client: Client, job_id: str) -> Future[tuple[dict[str, Any], float]]:
    """Begin a long-poll, and give its answer with the monotonic time at which it came."""
    answer = threads.submit(lambda: (client.job(job_id, "?wait=60"), time.monotonic()))
    waiter = services(client.app).waiter
    while waiter.num_waiting == 0 and not answer.done():
        pass
    return answer


def test_a_hint_ends_it(
    client: Client, worker: HandWorker, valkey_server: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Later than the test is patient: nothing but the hint can end it in time.
    monkeypatch.setattr("api.waiter.RECHECK_SECONDS", 60.0)
    with ThreadPoolExecutor(1) as threads, valkey_server.client() as redis:
        answer = poll(threads, client, client.submit()["id"])
        eventually(redis.pubsub_channels)
        worker.answer(worker.take()[0], "done")

        job, _ = answer.result(timeout=45)

    assert job["status"] == "succeeded"


@pytest.mark.slow
def test_it_ends_soon_after_the_commit(client: Client, worker: HandWorker) -> None:
    delays_seconds = []
    with ThreadPoolExecutor(1) as threads:
        for _ in range(5):
            answer = poll(threads, client, client.submit()["id"])
            worker.answer(worker.take()[0], "done")
            committed_at_seconds = time.monotonic()
            job, at_seconds = answer.result()
            delays_seconds.append(at_seconds - committed_at_seconds)
            assert job["status"] == "succeeded"

    assert statistics.median(delays_seconds) < 0.2


def test_it_ends_without_any_hint(client: Client, worker: HandWorker) -> None:
    with ThreadPoolExecutor(1) as threads:
        answer = poll(threads, client, client.submit()["id"])
        worker.answer(worker.take()[0], "done", with_hint=False)

        job, _ = answer.result(timeout=45)

    assert job["status"] == "succeeded"


def test_it_works_while_redis_is_away(api_settings: Settings) -> None:
    app = create_app(api_settings.model_copy(update={"redis_url": "unix:///nowhere/redis.sock"}))
    client = Client(app, KEY)
    with ThreadPoolExecutor(1) as threads:
        job_id = client.submit()["id"]
        answer = poll(threads, client, job_id)
        client.post(f"/v1/jobs/{job_id}/cancel")

        job, _ = answer.result(timeout=45)

    assert job["status"] == "cancelled"
    services(app).close()


def test_a_cancel_ends_it(client: Client) -> None:
    with ThreadPoolExecutor(1) as threads:
        job_id = client.submit()["id"]
        answer = poll(threads, client, job_id)
        client.post(f"/v1/jobs/{job_id}/cancel")

        assert answer.result(timeout=45)[0]["status"] == "cancelled"


def test_a_stopping_server_ends_it_with_the_state_so_far(app: Flask, client: Client) -> None:
    with ThreadPoolExecutor(1) as threads:
        job_id = client.submit()["id"]
        answer = poll(threads, client, job_id)
        services(app).waiter.release()

        assert answer.result(timeout=45)[0]["status"] == JobStatus.QUEUED


def test_a_preference_is_applied_and_said(client: Client, worker: HandWorker) -> None:
    job_id = client.submit()["id"]
    worker.answer(worker.take()[0], "done")

    answer = client.get(f"/v1/jobs/{job_id}", Prefer="respond-async, wait=75")

    # 75 seconds are more than this server's 60.
    assert answer.headers["Preference-Applied"] == "wait=60"


def test_other_preferences_are_left_alone(client: Client) -> None:
    answer = client.get(f"/v1/jobs/{client.submit()['id']}", Prefer="await=3; handling=lenient")

    assert answer.status_code == 200
    assert "Preference-Applied" not in answer.headers


def test_a_preference_that_is_no_time_is_refused(client: Client) -> None:
    answer = client.get(f"/v1/jobs/{client.submit()['id']}", Prefer="wait=soon")

    assert (answer.status_code, answer.get_json()["error"]["param"]) == (400, "Prefer")
