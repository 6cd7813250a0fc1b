"""A process that stands still in the middle of a transaction: on PostgreSQL only the server can end it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import select, text, update

from models import database as database_module
from models.database import Database
from models.errors import DatabaseUnavailable
from models.keys import default_project
from models.migrate import migrate
from models.tables.project import Project
from tests.services.postgres_server import PostgresServer


@pytest.fixture
def database(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """A database that waits one second for the next statement."""
    monkeypatch.setattr(database_module, "_MAX_IDLE_SECONDS", 1)
    url = postgres_server.create_database()
    found = Database(url)
    migrate(found)
    yield found
    found.close()
    postgres_server.drop_database(url)


def rename(database: Database, name: str) -> None:
    with database.transaction() as session:
        session.execute(text("SET LOCAL lock_timeout = '20s'"))
        session.execute(update(Project).values(name=name))


def test_its_locks_hold_nobody_up_for_long_and_its_work_is_undone(database: Database) -> None:
    with database.transaction() as session:
        default_project(session)

    def stand_still() -> None:
        with database.transaction() as session:
            session.execute(update(Project).values(name="stalled"))
            # Waits for the lock until the server has ended the transaction that stands still.
            rename(database, "other")

    with pytest.raises(DatabaseUnavailable):
        stand_still()
    with database.reading() as session:
        assert session.scalars(select(Project.name)).all() == ["other"]
    # And the connections that are left can be used.
    rename(database, "next")
