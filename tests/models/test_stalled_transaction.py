"""A process that stands still in the middle of a transaction: on PostgreSQL only the server can end it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import select, text, update

from models import database as database_module
from models.database import Database
from models.errors import DatabaseUnavailable
from models.lease import renew
from models.migrate import migrate
from models.tables.job import Job
from models.tables.project import Project
from tests.models.pipeline import Pipeline
from tests.services.postgres_server import PostgresServer


@pytest.fixture
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that is made after this waits three seconds for the next statement."""
    monkeypatch.setattr(database_module, "_MAX_IDLE_SECONDS", 3)


@pytest.fixture
def database(postgres_server: PostgresServer) -> Iterator[Database]:
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


@pytest.mark.usefixtures("impatience", "project_id")
def test_its_locks_hold_nobody_up_for_long_and_its_work_is_undone(database: Database) -> None:
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


def test_a_row_that_another_holds_keeps_no_other_lease_from_being_renewed(
    pipeline: Pipeline,
) -> None:
    """As where publish waits in its transaction for a counter that a frozen process has locked."""
    pipeline.accept(2)
    locked, free = pipeline.claim(lease_seconds=1)
    before = pipeline.job(locked.id).lease_until

    with pipeline.database.transaction() as session, ThreadPoolExecutor(1) as pool:
        session.get_one(Job, locked.id, with_for_update=True)
        renewing = pool.submit(renew, pipeline.database, [locked.held, free.held], lease_seconds=500)
        lost = renewing.result(timeout=30)

    assert lost == set()
    after, renewed = (pipeline.job(job.id).lease_until for job in (locked, free))
    assert after == before
    assert renewed is not None
    assert before is not None
    assert (renewed - before).total_seconds() > 400
