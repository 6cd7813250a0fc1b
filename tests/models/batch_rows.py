"""Rows of batches as they stand at some point of their way."""

from __future__ import annotations

from typing import Any

from models.database import Database, now
from models.ids import new_id
from models.tables.batch_job import BatchJob, BatchStatus
from tests.models.pipeline import MODEL


def add_batch(database: Database, project_id: str, **values: Any) -> str:
    """Store a batch that was just created from a file, but for `values`, and return its id."""
    with database.transaction() as session:
        plain = {
            "id": new_id("batch"),
            "status": BatchStatus.VALIDATING,
            "total": 0,
            "queued": 0,
            "created_at": now(session),
            "input_file_id": "file_1",
            "endpoint": "/v1/completions",
            "model": MODEL,
            "lane": "bulk",
            "completion_window": "24h",
        }
        batch = BatchJob(**{**plain, "project_id": project_id, **values})
        session.add(batch)
        return batch.id


def change_batch(database: Database, batch_id: str, **values: Any) -> None:
    """Write into a batch's row, past all rules."""
    with database.transaction() as session:
        batch = session.get_one(BatchJob, batch_id)
        for name, value in values.items():
            setattr(batch, name, value)
