from __future__ import annotations

import sqlite3
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import select, text

from models.database import Database, now
from models.errors import DatabaseUnavailable, StartupError
from models.ids import new_id
from models.migrate import migrate
from models.settings import sqlite_url
from models.tables.job import Job
from models.tables.project import Project
from tests.models.pipeline import Pipeline

REPOSITORY = Path(__file__).parents[2]


def add_project(database: Database, name: str) -> None:
    with database.transaction() as session:
        session.add(Project(id=new_id("proj"), name=name, created_at=now(session)))


def names(database: Database) -> list[str]:
    with database.reading() as session:
        return list(session.scalars(select(Project.name)))


def test_a_transaction_is_kept_whole_or_not_at_all(database: Database) -> None:
    add_project(database, "kept")

    def write_and_fail() -> None:
        with database.transaction() as session:
            session.add(Project(id="proj_lost", name="lost", created_at=now(session)))
            session.flush()
            raise LookupError

    with pytest.raises(LookupError):
        write_and_fail()

    assert names(database) == ["kept"]


def test_the_databases_clock_is_utc(database: Database) -> None:
    with database.reading() as session:
        told = now(session)

    assert told.tzinfo is UTC
    assert abs(datetime.now(UTC) - told) < timedelta(seconds=5)


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2026, 1, 31, 12, 30, 15, 123456, tzinfo=UTC),
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ],
)
def test_points_in_time_are_kept_to_the_microsecond(pipeline: Pipeline, moment: datetime) -> None:
    job_id = pipeline.accept(deadline_at=moment)

    assert pipeline.job(job_id).deadline_at == moment
    with pipeline.database.reading() as session:
        stored = session.scalar(text("SELECT deadline_at FROM jobs"))
    assert stored == (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def test_rows_stay_readable_after_their_transaction(pipeline: Pipeline) -> None:
    pipeline.accept()

    with pipeline.database.reading() as session:
        job = session.scalars(select(Job)).one()

    assert job.status == "queued"


def test_sqlite_writes_ahead_and_durably(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'a folder' / 'that is new' / 'headrace.db'}")

    with database.reading() as session:
        pragmas = {
            name: session.scalar(text(f"PRAGMA {name}"))
            for name in ("journal_mode", "synchronous", "foreign_keys")
        }
    database.close()

    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}


def test_a_new_file_that_another_process_writes_to_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "headrace.db"
    other = sqlite3.connect(file, isolation_level=None)
    # A file that holds something, but is not in our mode yet.
    other.execute("CREATE TABLE theirs (id INTEGER)")
    other.execute("BEGIN IMMEDIATE")
    waits: list[float] = []

    def let_go_at_the_second_wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            other.execute("COMMIT")

    monkeypatch.setattr("models.database.time.sleep", let_go_at_the_second_wait)
    database = Database(sqlite_url(file))

    with database.reading() as session:
        assert session.scalar(text("PRAGMA journal_mode")) == "wal"

    assert len(waits) == 2
    database.close()
    other.close()


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("not a url", "not valid"),
        ("mysql://localhost/db", "sqlite:/// or postgresql://"),
        ("sqlite://", "must be a file"),
        ("sqlite:///:memory:", "must be a file"),
    ],
)
def test_a_bad_url_is_a_startup_error(url: str, reason: str) -> None:
    with pytest.raises(StartupError, match=reason):
        Database(url)


def test_a_database_that_is_away_is_named(tmp_path: Path) -> None:
    database = Database(f"postgresql+psycopg://nobody@/none?host={tmp_path}")

    with pytest.raises(DatabaseUnavailable, match="does not answer"), database.reading() as session:
        now(session)
    database.close()


WRITER = """
import sys
from sqlalchemy import select
from models.database import Database, now
from models.tables.project import Project
database = Database(sys.argv[1])
for _ in range(200):
    with database.transaction() as session:
        project = session.scalars(select(Project)).one()
        project.name = str(int(project.name) + 1)
database.close()
"""


def test_four_processes_write_to_sqlite_without_losing_anything(migrated_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "headrace.db"
    path.write_bytes(migrated_file.read_bytes())
    database = Database(f"sqlite:///{path}")
    add_project(database, "0")

    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, f"sqlite:///{path}"],
            cwd=REPOSITORY,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    complaints = [writer.communicate()[1] for writer in writers]

    assert complaints == [""] * 4
    assert names(database) == ["800"]
    database.close()


def test_a_file_that_is_no_database_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("this is no database, and long enough to be taken for one " * 20)
    database = Database(f"sqlite:///{tmp_path / 'notes'}")

    with pytest.raises(DatabaseUnavailable, match="not a database"), database.reading() as session:
        now(session)
    database.close()


@pytest.mark.parametrize("name", ["w?x", "p%20q", "ü #1", "a&b=c"])
def test_a_path_may_hold_any_character(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name

    database = Database(sqlite_url(folder / "headrace.db"))
    migrate(database)
    database.close()

    assert (folder / "headrace.db").is_file()
    assert [path.name for path in tmp_path.iterdir()] == [name]
