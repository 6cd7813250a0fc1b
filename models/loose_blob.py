"""Blobs that are a part of nothing, known by name, so that none is forgotten in the store.

A blob's name stands in one table at a time: here while it is written and once its file is gone, else in
`upload_parts` or `file_parts`. So a process may die between any two steps.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import Select, delete, insert, literal
from sqlalchemy.orm import Session

from models.database import now
from models.tables.file import LooseBlob
from models.tables.root import UtcMicroseconds

#: Whoever wrote a blob that became a part of nothing for so long has died.
_UNCLAIMED = timedelta(days=1)
#: For those who are reading a file when it is deleted.
_LAST_READERS = timedelta(minutes=10)


def announce(session: Session, name: str) -> None:
    """Note a blob before it is written."""
    session.add(LooseBlob(blob=name, due_at=now(session) + _UNCLAIMED))


def claim(session: Session, name: str) -> None:
    """Take a blob that becomes a part of something in this transaction."""
    session.execute(delete(LooseBlob).where(LooseBlob.blob == name))


def loosen(session: Session, names: Select[str], at: datetime) -> None:
    """Let blobs be removed soon, which cease to be parts of something in this transaction."""
    due_at = literal(at + _LAST_READERS, UtcMicroseconds)
    session.execute(insert(LooseBlob).from_select(["blob", "due_at"], names.add_columns(due_at)))
