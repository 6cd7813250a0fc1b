from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from flask import Flask
from sqlalchemy import select, text

from api.app import create_app
from api.services import services
from models.database import now
from models.errors import StartupError
from models.settings import Settings
from models.tables.job import Job
from tests.api.client import Client
from tests.api.conftest import KEY
from tests.api.worker import HandWorker
from tests.services.redis_server import ValkeyServer


def test_the_process_lives_and_has_a_version(app: Flask) -> None:
    anyone = app.test_client()

    assert anyone.get("/healthz").get_json() == {"status": "ok"}
    assert anyone.get("/version").get_json()["version"]


def test_without_a_worker_it_is_ready_but_degraded(app: Flask) -> None:
    answer = app.test_client().get("/readyz")

    found = answer.get_json()
    assert (answer.status_code, found["status"], found["workers"]) == (200, "degraded", 0)
    assert found["reasons"] == ["no worker of tiny is alive", "no worker of org/other is alive"]


def test_with_all_parts_it_is_ready(api_settings: Settings) -> None:
    app = create_app(api_settings.model_copy(update={"models": None}))
    worker = HandWorker(services(app))
    worker.register()

    found = app.test_client().get("/readyz").get_json()

    assert (found["status"], found["workers_by_model"], found["reasons"]) == ("ok", {"tiny": 1}, [])
    worker.close()
    services(app).close()


def test_without_redis_it_is_degraded(api_settings: Settings) -> None:
    app = create_app(api_settings.model_copy(update={"redis_url": "unix:///nowhere/redis.sock"}))

    answer = app.test_client().get("/readyz")

    assert (answer.status_code, answer.get_json()["redis"]) == (200, "unavailable")
    services(app).close()


@pytest.fixture
def set_in_redis(valkey_server: ValkeyServer) -> Iterator[Callable[[str, object], None]]:
    """Changes the server's configuration until the test's end."""
    with valkey_server.client() as client:

        def change(name: str, value: object) -> None:
            client.config_set(name, value)

        yield change
        client.config_set("maxmemory", 0)
        client.config_set("maxmemory-policy", "noeviction")


def test_a_redis_that_may_evict_the_queue_is_named_for_as_long_as_it_may(
    app: Flask, worker: HandWorker, set_in_redis: Callable[[str, object], None]
) -> None:
    worker.register()
    set_in_redis("maxmemory-policy", "allkeys-lru")

    for _ in range(2):
        answer = app.test_client().get("/readyz")
        found = answer.get_json()
        assert (answer.status_code, found["status"], found["redis"]) == (200, "degraded", "degraded")
        assert found["reasons"][0] == (
            "Redis may evict what waits (maxmemory-policy is allkeys-lru); set it to noeviction"
        )
    set_in_redis("maxmemory-policy", "noeviction")

    assert app.test_client().get("/readyz").get_json()["redis"] == "ok"


def test_a_full_redis_is_named_and_jobs_are_accepted(
    app: Flask, client: Client, set_in_redis: Callable[[str, object], None]
) -> None:
    set_in_redis("maxmemory", 1)

    job = client.submit()
    answer = app.test_client().get("/readyz")

    found = answer.get_json()
    assert job["status"] == "queued"
    assert (answer.status_code, found["status"], found["redis"]) == (200, "degraded", "degraded")
    assert found["reasons"][0].startswith("Redis takes no writes: ")


def test_stuck_jobs_are_named_until_somebody_takes_some(app: Flask, client: Client) -> None:
    """Once those that it takes are taken in time, the depth of the backlog matters no more."""
    worker = HandWorker(services(app))
    worker.register()
    client.submit()
    client.submit()
    with services(app).database.transaction() as session:
        for job in session.scalars(select(Job)):
            job.available_at = now(session) - timedelta(seconds=300)

    stuck = app.test_client().get("/readyz")
    worker.take()
    freed = app.test_client().get("/readyz")

    found = stuck.get_json()
    assert (stuck.status_code, found["status"], found["stuck"]) == (200, "degraded", ["tiny"])
    assert "jobs of tiny are stuck: they wait, and for 60 s none was taken" in found["reasons"]
    assert freed.get_json()["stuck"] == []
    assert freed.get_json()["reasons"] == ["no worker of org/other is alive"]
    worker.close()


def test_without_migrations_it_is_not_ready(app: Flask) -> None:
    with services(app).database.transaction() as session:
        session.execute(text("DELETE FROM headrace_version"))

    answer = app.test_client().get("/readyz")

    found = answer.get_json()
    assert (answer.status_code, found["status"]) == (503, "unavailable")
    assert (found["database"], found["migrations"]) == ("ok", "missing")


def test_without_a_database_it_is_not_ready_and_says_when_to_try_again(app: Flask, tmp_path: Path) -> None:
    services(app).database.close()
    database = tmp_path / "headrace.db"
    database.rename(tmp_path / "moved.db")
    database.mkdir()

    ready = app.test_client().get("/readyz")
    answer = Client(app, KEY).get("/v1/jobs")

    assert (ready.status_code, ready.get_json()["database"]) == (503, "unavailable")
    error = answer.get_json()["error"]
    assert (answer.status_code, error["code"], error["type"]) == (503, "database_unavailable", "server_error")
    assert answer.headers["Retry-After"] == "2"
    assert "sqlite" not in error["message"].lower()


def test_a_database_that_is_not_migrated_is_refused_at_the_start(
    settings: Callable[..., Settings], redis_url: str
) -> None:
    with pytest.raises(StartupError, match="headrace migrate"):
        create_app(settings(redis_url=redis_url))


def test_a_start_without_any_redis_is_refused(api_settings: Settings) -> None:
    with pytest.raises(StartupError, match="HEADRACE_REDIS_URL"):
        create_app(api_settings.model_copy(update={"redis_url": None}))


def test_the_first_start_makes_a_key_that_is_valid(api_settings: Settings) -> None:
    app = create_app(api_settings.model_copy(update={"api_key": None}))

    path = api_settings.data_dir / "api_key"
    answer = Client(app, path.read_text().strip()).get("/v1/jobs")

    assert answer.status_code == 200
    assert path.stat().st_mode & 0o777 == 0o600
    services(app).close()
