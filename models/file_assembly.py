"""Files that are put together of blobs, which are parts of nothing else, in the caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from models.blob_store import BlobWriter
from models.database import now
from models.ids import new_id
from models.tables.file import FilePart, FilePurpose, StoredFile


class Blob(NamedTuple):
    """A blob that was written."""

    name: str
    num_bytes: int
    sha256: str
    num_lines: int

    @classmethod
    def of(cls, writer: BlobWriter) -> Blob:
        """Return what a writer has written."""
        return cls(writer.name, writer.num_bytes, writer.sha256, writer.num_lines)


def add_file(
    session: Session,
    project_id: str,
    *,
    purpose: FilePurpose,
    filename: str,
    parts: Sequence[Blob],
    expires_after_seconds: float | None,
    num_lines: int,
) -> StoredFile:
    """Make a file of blobs, in their order. Lines may cross from one into the next, so they are given."""
    at = now(session)
    file = begin_file(session, project_id, purpose=purpose, filename=filename, at=at)
    session.add_all([_part(file, number, blob) for number, blob in enumerate(parts)])
    file.num_bytes = sum(blob.num_bytes for blob in parts)
    file.num_lines = num_lines
    file.ready_at = at
    if expires_after_seconds is not None:
        file.expires_at = at + timedelta(seconds=expires_after_seconds)
    return file


def begin_file(
    session: Session, project_id: str, *, purpose: FilePurpose, filename: str, at: datetime
) -> StoredFile:
    """Make a file without any part, which nobody sees yet."""
    file = StoredFile(
        id=new_id("file"),
        project_id=project_id,
        purpose=purpose,
        filename=filename,
        num_bytes=0,
        num_lines=0,
        created_at=at,
    )
    session.add(file)
    session.flush()
    return file


def append_part(session: Session, file: StoredFile, blob: Blob) -> None:
    """Let a file that nobody sees yet go on with a blob. Only one at a time may do so with a file."""
    row = session.get_one(StoredFile, file.id)
    last = select(func.coalesce(func.max(FilePart.number), -1)).where(FilePart.file_id == row.id)
    session.add(_part(row, session.scalars(last).one() + 1, blob))
    row.num_bytes += blob.num_bytes
    row.num_lines += blob.num_lines
    session.flush()


def _part(file: StoredFile, number: int, blob: Blob) -> FilePart:
    return FilePart(
        file_id=file.id, number=number, blob=blob.name, num_bytes=blob.num_bytes, sha256=blob.sha256
    )
