"""Blobs that are a part of nothing, known by name, so that none is forgotten in the store.

A blob's name stands in one table at a time: here while it is written and once its file is gone, else in
`upload_parts` or `file_parts`. So a process may die between any two steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import Select, delete, insert, literal, select, update
from sqlalchemy.orm import Session

from models.database import now
from models.errors import FileStorageUnavailable
from models.tables.file import LooseBlob
from models.tables.root import UtcMicroseconds

#: Whoever wrote a blob that became a part of nothing for so long has died, or was frozen.
_UNCLAIMED = timedelta(days=1)
#: For those who are reading a file when it is deleted.
_LAST_READERS = timedelta(minutes=10)
#: How long whoever removes a blob may take, until it is tried again.
_REMOVAL = timedelta(minutes=10)


def announce(session: Session, name: str) -> None:
    """Note a blob before it is written."""
    session.add(LooseBlob(blob=name, due_at=now(session) + _UNCLAIMED))


def claim(session: Session, name: str) -> None:
    """Take a blob that becomes a part of something in this transaction.

    Raises FileStorageUnavailable for one that is being removed, or soon might be.
    """
    safe = LooseBlob.due_at > now(session) + _REMOVAL
    taken = delete(LooseBlob).where(LooseBlob.blob == name, safe).returning(LooseBlob.blob)
    if session.scalar(taken) is None:
        raise FileStorageUnavailable(f"the blob {name} was given up: a day has gone by since it was begun")


def loosen(session: Session, names: Select[str], at: datetime) -> None:
    """Let blobs be removed soon, which cease to be parts of something in this transaction."""
    due_at = literal(at + _LAST_READERS, UtcMicroseconds)
    session.execute(insert(LooseBlob).from_select(["blob", "due_at"], names.add_columns(due_at)))


def take_due(session: Session, at: datetime, limit: int) -> list[str]:
    """Return blobs to remove now. One that is not removed comes again later, after all others."""
    due = select(LooseBlob.blob).where(LooseBlob.due_at <= at).order_by(LooseBlob.due_at, LooseBlob.blob)
    names = list(session.scalars(due.limit(limit).with_for_update(skip_locked=True)))
    later = update(LooseBlob).where(LooseBlob.blob.in_(names)).values(due_at=at + _REMOVAL)
    session.execute(later, execution_options={"synchronize_session": False})
    return names


def forget_blobs(session: Session, names: Sequence[str]) -> None:
    """Forget blobs that are removed."""
    session.execute(delete(LooseBlob).where(LooseBlob.blob.in_(names)))
