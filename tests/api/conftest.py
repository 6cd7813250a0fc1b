"""The API over a real database and a real Valkey, with a worker that the test moves by hand."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from flask import Flask
from pydantic import SecretStr

from api.app import create_app
from api.services import services
from models.settings import Settings
from tests.api.background import HandBackground
from tests.api.client import Client
from tests.api.worker import MODEL, HandWorker

KEY = "a-key-for-tests-only"


@pytest.fixture
def migrated_url(migrated_file: Path, tmp_path: Path) -> str:
    """A migrated database; a module whose tests must hold on PostgreSQL too gives others."""
    path = tmp_path / "headrace.db"
    shutil.copy(migrated_file, path)
    return f"sqlite:///{path}"


@pytest.fixture
def api_settings(settings: Callable[..., Settings], migrated_url: str, redis_url: str) -> Settings:
    """Settings of an API whose database is migrated and whose Valkey is empty."""
    return settings(
        database_url=migrated_url,
        redis_url=redis_url,
        redis_namespace="test",
        served_model_name=MODEL,
        models=f"{MODEL},org/other",
        api_key=SecretStr(KEY),
        max_body_bytes=4096,
        max_list_requests=5,
        max_poll_seconds=60.0,
    )


@pytest.fixture
def app(api_settings: Settings) -> Iterator[Flask]:
    app = create_app(api_settings)
    yield app
    services(app).close()


@pytest.fixture
def client(app: Flask) -> Client:
    """A client with the key of the default project."""
    return Client(app, KEY)


@pytest.fixture
def stranger(app: Flask) -> Client:
    """A client with the key of another project."""
    return Client.of_new_project(app, "stranger")


@pytest.fixture
def worker(app: Flask) -> Iterator[HandWorker]:
    worker = HandWorker(services(app))
    yield worker
    worker.close()


@pytest.fixture
def background(app: Flask) -> HandBackground:
    return HandBackground(services(app))
