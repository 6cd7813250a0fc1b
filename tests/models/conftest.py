"""Here `database` is SQLite and PostgreSQL in turn, migrated once for all tests and emptied for each."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import delete

from models.database import Database
from models.migrate import migrate
from models.queue import JobQueue
from models.settings import Settings
from models.tables.registry import METADATA
from tests.models.batch_kit import BatchKit
from tests.models.pipeline import MODEL, Pipeline
from tests.services.postgres_server import PostgresServer


@pytest.fixture(scope="session")
def migrated_postgres(postgres_server: PostgresServer) -> Iterator[Database]:
    """A migrated PostgreSQL database, to be emptied before each test."""
    database = Database(postgres_server.create_database())
    migrate(database)
    yield database
    database.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        path = tmp_path / "headrace.db"
        shutil.copy(request.getfixturevalue("migrated_file"), path)
        found = Database(f"sqlite:///{path}")
        yield found
        found.close()
        return
    shared: Database = request.getfixturevalue("migrated_postgres")
    with shared.transaction() as session:
        for table in reversed(METADATA.sorted_tables):
            session.execute(delete(table))
    yield shared


@pytest.fixture
def pipeline(database: Database, queue: JobQueue, redis_url: str, project_id: str) -> Iterator[Pipeline]:
    with Pipeline(database, queue, redis_url, project_id) as found:
        yield found


@pytest.fixture
def kit(database: Database, tmp_path: Path, settings: Callable[..., Settings], project_id: str) -> BatchKit:
    """Files, and batches that are made of them."""
    return BatchKit(database, tmp_path / "files", settings(model=MODEL), project_id)
