from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import select

from models.database import Database, now
from models.retention import Retention
from models.tables.project import IdempotencyKey, Project
from models.tables.worker import Window

_DAY = 86400.0


@pytest.fixture
def database_url(any_database_url: str) -> str:
    return any_database_url


@pytest.fixture
def retention(database: Database) -> Retention:
    """Keeps idempotency keys for one day and history for ten."""
    return Retention(database, idempotency_seconds=_DAY, history_seconds=10 * _DAY)


def add_keys(database: Database, project_id: str, *keys: str, age_days: float) -> None:
    with database.transaction() as session:
        at = now(session) - timedelta(days=age_days)
        session.add_all(
            IdempotencyKey(
                project_id=project_id, key=key, request_hash="h", resource_id="job_1", created_at=at
            )
            for key in keys
        )


def add_windows(database: Database, *ids: str, age_days: float) -> None:
    with database.transaction() as session:
        at = now(session) - timedelta(days=age_days)
        session.add_all(
            Window(id=id, worker_id="w", reason="idle", num_jobs=1, num_tokens=1, opened_at=at, closed_at=at)
            for id in ids
        )


def test_what_is_older_than_its_own_limit_goes(
    database: Database, project_id: str, retention: Retention
) -> None:
    add_keys(database, project_id, "old", "older", age_days=1.1)
    add_keys(database, project_id, "young", age_days=0.9)
    add_windows(database, "win_old", age_days=10.1)
    add_windows(database, "win_young", age_days=1.1)

    deleted = retention.forget()

    assert deleted == {"idempotency_keys": 2, "windows": 1}
    with database.reading() as session:
        assert session.scalars(select(IdempotencyKey.key)).all() == ["young"]
        assert session.scalars(select(Window.id)).all() == ["win_young"]


def test_a_key_of_the_same_name_in_another_project_stays(
    database: Database, project_id: str, retention: Retention
) -> None:
    with database.transaction() as session:
        session.add(Project(id="proj_2", name="second", created_at=now(session)))
    add_keys(database, project_id, "same", age_days=2)
    add_keys(database, "proj_2", "same", age_days=0)

    retention.forget()

    with database.reading() as session:
        assert session.scalars(select(IdempotencyKey.project_id)).all() == ["proj_2"]


def test_more_than_one_transaction_deletes_goes_at_once(
    database: Database, project_id: str, retention: Retention
) -> None:
    add_keys(database, project_id, *(f"key {number}" for number in range(1203)), age_days=2)

    assert retention.forget() == {"idempotency_keys": 1203, "windows": 0}
    assert retention.forget() == {"idempotency_keys": 0, "windows": 0}
