from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from flask import Flask
from sqlalchemy import text

from api.app import create_app
from api.services import services
from models.errors import StartupError
from models.settings import Settings
from tests.api.client import Client
from tests.api.conftest import KEY
from tests.api.worker import HandWorker


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
