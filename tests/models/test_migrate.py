from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import inspect, text

from models.database import Database
from models.errors import ForeignDatabase, StartupError
from models.keys import default_project
from models.migrate import migrate, require_migrated
from models.tables.registry import METADATA

REPOSITORY = Path(__file__).parents[2]


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


PROGRAM = """
import sys
from models.database import Database
from models.migrate import migrate
database = Database(sys.argv[1])
print("ready", flush=True)
sys.stdin.read()
migrate(database)
database.close()
"""


def test_several_processes_may_migrate_at_once(empty: Database, any_database_url: str) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, any_database_url],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"

    with ThreadPoolExecutor(3) as pool:
        ends = list(pool.map(lambda process: process.communicate(timeout=60), processes))

    assert ends == [("", "")] * 3
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
