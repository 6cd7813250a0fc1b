"""What a Headrace has stored, read from its SQLite file behind its back."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple


class StoredLine(NamedTuple):
    """A line whose result is committed: how often its job was claimed, and what it was answered."""

    attempt: int
    body: dict[str, Any]


def count_results(file: Path) -> int:
    """How many results are committed; 0 while there is no database with such a table."""
    if not file.exists():
        return 0
    try:
        return int(next(_query(file, "SELECT count(*) FROM job_results"))[0])
    except sqlite3.OperationalError:
        return 0


def count_jobs(file: Path) -> int:
    """How many jobs were accepted."""
    return int(next(_query(file, "SELECT count(*) FROM jobs"))[0])


def has_running_jobs(file: Path) -> bool:
    """Whether a worker holds any job now."""
    return bool(next(_query(file, "SELECT count(*) FROM jobs WHERE status = 'running'"))[0])


def stored_lines(file: Path) -> dict[int, StoredLine]:
    """The answered lines by their number, from 0."""
    rows = _query(
        file,
        "SELECT line, attempt, body FROM jobs JOIN job_results ON job_id = id WHERE body IS NOT NULL",
    )
    return {line: StoredLine(attempt, json.loads(body)) for line, attempt, body in rows}


def window_sizes(file: Path) -> list[int]:
    """How many jobs each window held."""
    return [row[0] for row in _query(file, "SELECT num_jobs FROM windows ORDER BY closed_at")]


def copy_of(file: Path, folder: Path) -> Path:
    """A copy of a database that nobody writes to, so that reading it changes nothing at the original."""
    folder.mkdir()
    for part in file.parent.glob(file.name + "*"):
        shutil.copy(part, folder)
    return folder / file.name


def _query(file: Path, statement: str) -> Iterator[Any]:
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=30)) as connection:
        yield from connection.execute(statement).fetchall()
