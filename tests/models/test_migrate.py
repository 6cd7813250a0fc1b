from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import inspect, text

from models.database import Database
from models.errors import ForeignDatabase, StartupError
from models.keys import default_project
from models.migrate import migrate, require_migrated
from models.tables.registry import METADATA


@pytest.fixture
def empty(any_database_url: str) -> Iterator[Database]:
    """A database without tables."""
    database = Database(any_database_url)
    yield database
    database.close()


def test_the_migrations_make_the_tables_of_the_code(empty: Database) -> None:
    migrate(empty)

    with empty.reading() as session:
        context = MigrationContext.configure(
            session.connection(), opts={"version_table": "headrace_version", "compare_type": True}
        )
        assert compare_metadata(context, METADATA) == []
    require_migrated(empty)


def test_partial_indexes_and_constraints_are_there(empty: Database) -> None:
    migrate(empty)

    with empty.reading() as session:
        found = inspect(session.connection())
        indexes = {index["name"]: index["dialect_options"] for index in found.get_indexes("jobs")}
        unique = [constraint["column_names"] for constraint in found.get_unique_constraints("jobs")]

    name = empty.engine.dialect.name
    assert "queued" in str(indexes["ix_jobs_undispatched"][f"{name}_where"])
    assert "running" in str(indexes["ix_jobs_lease"][f"{name}_where"])
    assert ["batch_id", "line", "revision"] in unique


def test_migrating_again_changes_nothing(empty: Database) -> None:
    migrate(empty)
    with empty.transaction() as session:
        project_id = default_project(session)

    migrate(empty)

    with empty.transaction() as session:
        assert default_project(session) == project_id


def test_several_may_migrate_at_once(empty: Database) -> None:
    together = threading.Barrier(3)

    def run(_: int) -> None:
        together.wait()
        migrate(empty)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(run, range(3)))

    require_migrated(empty)


def test_a_database_of_others_is_refused_and_left_alone(empty: Database) -> None:
    with empty.transaction() as session:
        session.execute(text("CREATE TABLE recipes (id INTEGER)"))

    with pytest.raises(ForeignDatabase, match=r"recipes.*HEADRACE_DATABASE_URL"):
        migrate(empty)
    with pytest.raises(ForeignDatabase):
        require_migrated(empty)

    with empty.reading() as session:
        assert inspect(session.connection()).get_table_names() == ["recipes"]


def test_an_empty_database_is_not_ready(empty: Database) -> None:
    with pytest.raises(StartupError, match=r"empty.*headrace migrate"):
        require_migrated(empty)


def test_a_database_of_another_version_is_not_ready(empty: Database) -> None:
    migrate(empty)
    with empty.transaction() as session:
        session.execute(text("UPDATE headrace_version SET version_num = '9999'"))

    with pytest.raises(StartupError, match=r"9999.*headrace migrate"):
        require_migrated(empty)
