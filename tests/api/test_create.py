from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from flask import Flask

from api.app import create_app
from api.services import services
from models.database import Database
from models.migrate import migrate
from models.settings import Settings
from models.tables.job import Lane
from tests.api.client import Client, prompt
from tests.api.conftest import KEY
from tests.api.worker import MODEL, HandWorker


@pytest.fixture
def migrated_url(any_database_url: str) -> str:
    """SQLite and PostgreSQL in turn."""
    database = Database(any_database_url)
    migrate(database)
    database.close()
    return any_database_url


def test_one_job_is_accepted_and_queued(app: Flask, client: Client, worker: HandWorker) -> None:
    answer = client.post("/v1/jobs", prompt("Hé 🌊", custom_id="mine", metadata={"a": "b"}, lane="bulk"))

    job = answer.get_json()
    assert answer.status_code == 202
    assert answer.headers["Location"] == f"/v1/jobs/{job['id']}"
    assert answer.headers["Retry-After"] == "1"
    assert (job["object"], job["status"], job["endpoint"]) == ("job", "queued", "/v1/completions")
    assert (job["custom_id"], job["metadata"], job["lane"]) == ("mine", {"a": "b"}, "bulk")
    assert (job["queue_position"], job["response"], job["error"]) == (1, None, None)
    assert services(app).queue.job_ids(MODEL, Lane.BULK) == {job["id"]}
    assert client.get(answer.headers["Location"]).get_json() == job


def test_a_list_becomes_a_batch_in_order(client: Client) -> None:
    requests = [prompt(f"p{line}", custom_id=f"c{line}") for line in range(3)]

    answer = client.post("/v1/jobs", {"requests": requests, "metadata": {"of": "me"}})

    batch = answer.get_json()
    assert answer.status_code == 202
    assert answer.headers["Location"] == f"/v1/batches/{batch['id']}"
    assert (batch["object"], batch["status"], batch["metadata"]) == ("batch", "in_progress", {"of": "me"})
    assert batch["request_counts"] == {"total": 3, "completed": 0, "failed": 0}
    jobs = client.get(f"/v1/jobs?batch_id={batch['id']}").get_json()["data"]
    assert [(job["line"], job["custom_id"]) for job in reversed(jobs)] == [(0, "c0"), (1, "c1"), (2, "c2")]


def test_jobs_are_accepted_while_redis_is_away(api_settings: Settings) -> None:
    app = create_app(api_settings.model_copy(update={"redis_url": "unix:///nowhere/redis.sock"}))
    client = Client(app, KEY)

    accepted = client.submit()

    assert client.job(accepted["id"])["status"] == "queued"
    services(app).close()


def test_the_same_key_and_body_give_the_same_job(client: Client) -> None:
    headers = {"Idempotency-Key": "once"}

    first = client.submit(prompt("same"), **headers)
    again = client.submit(prompt("same"), **headers)

    assert again["id"] == first["id"]
    assert len(client.get("/v1/jobs").get_json()["data"]) == 1


def test_the_same_key_and_list_give_the_same_batch(client: Client) -> None:
    body = {"requests": [prompt("a"), prompt("b")]}
    headers = {"Idempotency-Key": "once"}

    first = client.submit(body, **headers)
    again = client.submit(body, **headers)

    assert again["id"] == first["id"]
    assert len(client.get("/v1/jobs").get_json()["data"]) == 2


def test_the_same_key_with_another_body_is_refused(client: Client) -> None:
    headers = {"Idempotency-Key": "once"}
    client.submit(prompt("one"), **headers)

    answer = client.post("/v1/jobs", prompt("other"), **headers)

    assert answer.status_code == 422
    assert answer.get_json()["error"]["code"] == "idempotency_key_reused"
    assert len(client.get("/v1/jobs").get_json()["data"]) == 1


def test_a_key_belongs_to_its_project(client: Client, stranger: Client) -> None:
    headers = {"Idempotency-Key": "once"}

    mine = client.submit(prompt("one"), **headers)
    theirs = stranger.submit(prompt("other"), **headers)

    assert theirs["id"] != mine["id"]


def test_requests_with_one_key_at_the_same_moment_make_one_job(client: Client) -> None:
    num_threads = 4
    together = Barrier(num_threads)

    def submit(_: int) -> str:
        together.wait()
        return str(client.submit(prompt("same"), **{"Idempotency-Key": "once"})["id"])

    with ThreadPoolExecutor(num_threads) as threads:
        ids = set(threads.map(submit, range(num_threads)))

    assert len(ids) == 1
    assert len(client.get("/v1/jobs").get_json()["data"]) == 1


@pytest.mark.parametrize("key", ["", "x" * 256, "a\tb"])
def test_an_unusable_idempotency_key_is_refused(client: Client, key: str) -> None:
    answer = client.post("/v1/jobs", prompt(), **{"Idempotency-Key": key})

    assert answer.status_code == 400
    assert answer.get_json()["error"]["param"] == "Idempotency-Key"
