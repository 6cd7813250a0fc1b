"""Rows of files, without any bytes."""

from __future__ import annotations

from typing import Any

from models.database import Database, now
from models.ids import new_id
from models.tables.file import StoredFile


def add_file(database: Database, project_id: str, **values: Any) -> str:
    """Store the row of an input file that is ready to be read, but for `values`, and return its id."""
    with database.transaction() as session:
        at = now(session)
        plain = {
            "id": new_id("file"),
            "purpose": "batch",
            "filename": "in.jsonl",
            "created_at": at,
            "ready_at": at,
        }
        file = StoredFile(**{**plain, "project_id": project_id, **values})
        session.add(file)
        return file.id
