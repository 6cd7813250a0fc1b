"""The server that is measured keeps what it has committed, and is gone at the end."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from sqlalchemy import text

from bench.pipeline.postgres import find_postgres, postgres
from models.database import Database
from models.errors import DatabaseUnavailable
from tests.services.missing import missing


def test_it_serves_an_empty_database_with_its_safety_on() -> None:
    programs = find_postgres() or missing("PostgreSQL is not installed")
    # Not in pytest's own folder, which the server's user may not enter.
    with tempfile.TemporaryDirectory(prefix="headrace-pg-") as name:
        Path(name).chmod(0o755)

        with postgres(programs, Path(name, "pg")) as url:
            database = Database(url)
            with database.reading() as session:
                settings = [session.scalar(text(f"SHOW {name}")) for name in ("fsync", "synchronous_commit")]
            database.close()

        with pytest.raises(DatabaseUnavailable), database.reading() as session:
            session.scalar(text("SELECT 1"))
    assert settings == ["on", "on"]
