from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import func, select

from models.database import Database
from models.errors import InvalidApiKey, StartupError
from models.keys import KeyRing, default_project
from models.migrate import migrate
from models.tables.project import ApiKey, Project

GIVEN = "a-key-of-sixteen-or-more"


@pytest.fixture
def ring(database: Database) -> KeyRing:
    return KeyRing(database)


def test_a_key_opens_its_project(ring: KeyRing, project_id: str) -> None:
    first, second = ring.create("one"), ring.create("two")

    assert first.secret != second.secret
    assert ring.authenticate(first.secret) == ring.authenticate(second.secret) == project_id
    assert [(key.id, key.name) for key in ring.all()] == [(first.id, "one"), (second.id, "two")]


@pytest.mark.parametrize("secret", ["", "hr_wrong", "é", "a\0b", "'; DROP TABLE api_keys; --"])
def test_what_is_no_key_opens_nothing(ring: KeyRing, secret: str) -> None:
    ring.create("one")

    with pytest.raises(InvalidApiKey):
        ring.authenticate(secret)


def test_a_revoked_key_opens_nothing_and_stays_revoked(ring: KeyRing) -> None:
    key, other = ring.create("one"), ring.create("two")

    assert ring.revoke(key.id)
    (revoked_at,) = (found.revoked_at for found in ring.all() if found.id == key.id)
    assert ring.revoke(key.id)

    with pytest.raises(InvalidApiKey):
        ring.authenticate(key.secret)
    assert revoked_at is not None
    assert [found.revoked_at for found in ring.all()] == [revoked_at, None]
    ring.authenticate(other.secret)
    assert not ring.revoke("key_none")


def test_the_secret_is_not_in_the_table(ring: KeyRing, database: Database) -> None:
    key = ring.create("one")

    with database.reading() as session:
        (row,) = session.execute(select(ApiKey.__table__)).mappings()

    assert key.secret not in str(dict(row))
    assert row["hint"] == f"{key.secret[:6]}…{key.secret[-4:]}"
    assert len(row["hash"]) == 64


def test_the_first_start_makes_a_key_that_only_its_owner_may_read(ring: KeyRing, tmp_path: Path) -> None:
    ring.ensure_first(tmp_path / "data", None)
    ring.ensure_first(tmp_path / "data", None)

    path = tmp_path / "data" / "api_key"
    assert path.stat().st_mode & 0o777 == 0o600
    ring.authenticate(path.read_text().strip())
    assert len(ring.all()) == 1


def test_a_kept_key_is_valid_on_a_new_database(ring: KeyRing, tmp_path: Path) -> None:
    (tmp_path / "api_key").write_text(GIVEN + "\n")

    ring.ensure_first(tmp_path, None)

    ring.authenticate(GIVEN)


def test_an_empty_key_file_is_filled(ring: KeyRing, tmp_path: Path) -> None:
    (tmp_path / "api_key").touch(0o600)

    ring.ensure_first(tmp_path, None)

    ring.authenticate((tmp_path / "api_key").read_text().strip())


def test_a_key_that_cannot_be_kept_is_not_made(ring: KeyRing, tmp_path: Path) -> None:
    (tmp_path / "data").touch()

    with pytest.raises(OSError, match="data"):
        ring.ensure_first(tmp_path / "data", None)

    assert ring.all() == []


def test_a_given_key_is_valid_beside_others(ring: KeyRing, tmp_path: Path) -> None:
    other = ring.create("one")

    ring.ensure_first(tmp_path, GIVEN)
    ring.ensure_first(tmp_path, GIVEN)

    assert ring.authenticate(GIVEN) == ring.authenticate(other.secret)
    assert len(ring.all()) == 2
    assert not (tmp_path / "api_key").exists()


def test_a_short_key_is_refused(ring: KeyRing, tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"HEADRACE_API_KEY.*16"):
        ring.ensure_first(tmp_path, "x" * 15)

    assert ring.all() == []


def test_a_given_key_that_was_revoked_is_refused(ring: KeyRing, tmp_path: Path) -> None:
    ring.ensure_first(tmp_path, GIVEN)
    (key,) = ring.all()
    ring.revoke(key.id)

    with pytest.raises(StartupError, match=f"revoked key {key.id}"):
        ring.ensure_first(tmp_path, GIVEN)


def test_first_starts_on_one_folder_keep_the_same_key(ring: KeyRing, tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: ring.ensure_first(tmp_path, None), range(8)))

    assert len(ring.all()) == 1
    assert ring.authenticate((tmp_path / "api_key").read_text().strip())


def test_there_is_one_default_project(database: Database, project_id: str) -> None:
    with database.transaction() as session:
        assert default_project(session) == project_id
        assert session.scalar(select(func.count()).select_from(Project)) == 1


def test_first_starts_at_the_same_moment_make_one_project_and_one_key(
    any_database_url: str, tmp_path: Path
) -> None:
    database = Database(any_database_url)
    migrate(database)
    barrier = threading.Barrier(8)

    def start(_: int) -> None:
        barrier.wait()
        KeyRing(database).ensure_first(tmp_path, GIVEN)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(start, range(8)))

    with database.reading() as session:
        assert session.scalar(select(func.count()).select_from(Project)) == 1
        assert session.scalar(select(func.count()).select_from(ApiKey)) == 1
    database.close()
