"""Files as their project sees them, and as background work writes and reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Literal

from sqlalchemy import ColumnElement, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from models import file_assembly
from models.blob_store import BlobStore, BlobWriter, new_blob_name
from models.database import Database, now
from models.errors import FileInUse, FileNotFound
from models.file_assembly import Blob as Blob
from models.loose_blob import announce, claim
from models.raw_line import RawLine as RawLine
from models.raw_line import split_lines
from models.tables.batch_job import OPEN_STATUSES, BatchJob
from models.tables.file import FilePart, FilePurpose, StoredFile


class FileStore:
    """The files of all projects. A file of another project does not exist here."""

    def __init__(self, database: Database, blobs: BlobStore) -> None:
        self.database = database
        self.blobs = blobs

    @contextmanager
    def writer(self) -> Iterator[BlobWriter]:
        """Give a writer of a new blob that is removed after a day, unless it becomes a part of something.

        Not to be called in a transaction. Raises FileStorageUnavailable.
        """
        name = new_blob_name()
        with self.database.transaction() as session:
            announce(session, name)
        with self.blobs.writer(name) as writer:
            yield writer

    def add(
        self,
        project_id: str,
        *,
        purpose: FilePurpose,
        filename: str,
        parts: Sequence[Blob],
        expires_after_seconds: float | None,
        num_lines: int,
    ) -> StoredFile:
        """Make a file of blobs of `writer`, in their order.

        Raises FileStorageUnavailable for blobs that were given up.
        """
        with self.database.transaction() as session:
            for blob in parts:
                claim(session, blob.name)
            return file_assembly.add_file(
                session,
                project_id,
                purpose=purpose,
                filename=filename,
                parts=parts,
                expires_after_seconds=expires_after_seconds,
                num_lines=num_lines,
            )

    def find(self, project_id: str, file_id: str) -> StoredFile:
        """Return a file. Raises FileNotFound for one that is not ready, deleted or expired as well."""
        with self.database.reading() as session:
            return _require(session, project_id, file_id, now(session))

    def find_input(self, project_id: str, file_id: str) -> StoredFile:
        """Return the input of an open batch, which is kept for it even when it has expired."""
        with self.database.reading() as session:
            return _require(session, project_id, file_id, None)

    def hold(self, session: Session, project_id: str, file_id: str) -> StoredFile:
        """Return a file that nobody deletes before this transaction is over. Raises FileNotFound."""
        return _require(session, project_id, file_id, now(session), lock=True)

    def page(
        self,
        project_id: str,
        *,
        purpose: FilePurpose | None = None,
        after: str | None = None,
        limit: int,
        order: Literal["asc", "desc"] = "desc",
    ) -> tuple[list[StoredFile], bool]:
        """Return files by time of creation, those that follow the file `after`; and whether there are more.

        The file `after` need not be there any more.
        """
        with self.database.reading() as session:
            conditions = [StoredFile.project_id == project_id, _visible(now(session))]
            if purpose is not None:
                conditions.append(StoredFile.purpose == purpose)
            if after is not None:
                conditions.append(StoredFile.id > after if order == "asc" else StoredFile.id < after)
            by = StoredFile.id.asc() if order == "asc" else StoredFile.id.desc()
            found = session.scalars(select(StoredFile).where(*conditions).order_by(by).limit(limit + 1)).all()
        return list(found[:limit]), len(found) > limit

    def delete(self, project_id: str, file_id: str) -> None:
        """Let a file be gone from now on; its bytes go later. Raises FileNotFound and FileInUse."""
        with self.database.transaction() as session:
            at = now(session)
            file = _require(session, project_id, file_id, at, lock=True)
            reader = session.scalar(select(BatchJob.id).where(being_read(file.id)).limit(1))
            if reader is not None:
                raise FileInUse(f"The file is being read by {reader}; delete it once the batch is over.")
            file.deleted_at = at

    def read(self, file: StoredFile, *, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Give a file's bytes from `start` on, at most `length`, piece by piece.

        Raises FileStorageUnavailable, also in the middle.
        """
        end = file.num_bytes if length is None else min(file.num_bytes, start + length)
        at = 0
        for name, num_bytes in self._parts(file):
            first, last = max(start - at, 0), min(end - at, num_bytes)
            if first < last:
                yield from self.blobs.read(name, start=first, length=last - first)
            at += num_bytes

    def lines(self, file: StoredFile, *, offset: int = 0, max_bytes: int) -> Iterator[RawLine]:
        """Give a file's lines from the one that begins at `offset` on, in constant memory.

        Of a line that is longer than `max_bytes`, one byte more than that, so that it can be told.
        """
        return split_lines(self.read(file, start=offset), offset=offset, max_bytes=max_bytes)

    def begin_output(self, session: Session, project_id: str, *, filename: str, at: datetime) -> StoredFile:
        """Make a file without any part, which nobody sees until it is finished."""
        return file_assembly.begin_file(
            session, project_id, purpose=FilePurpose.BATCH_OUTPUT, filename=filename, at=at
        )

    def append_part(self, session: Session, file: StoredFile, blob: Blob) -> None:
        """Let an output that is not finished go on with a blob of `writer`, under the row lock of its batch.

        Raises FileStorageUnavailable for a blob that was given up.
        """
        claim(session, blob.name)
        file_assembly.append_part(session, file, blob)

    def finish_output(
        self, session: Session, file: StoredFile, *, at: datetime, expires_at: datetime | None
    ) -> None:
        """Let a file be seen; it never changes from now on."""
        row = session.get_one(StoredFile, file.id)
        row.ready_at = at
        row.expires_at = expires_at

    def drop(self, session: Session, file: StoredFile, at: datetime) -> None:
        """Let a file be gone that nobody needs."""
        session.get_one(StoredFile, file.id).deleted_at = at

    def _parts(self, file: StoredFile) -> list[tuple[str, int]]:
        with self.database.reading() as session:
            rows = session.execute(
                select(FilePart.blob, FilePart.num_bytes)
                .where(FilePart.file_id == file.id)
                .order_by(FilePart.number)
            )
            return [(row.blob, row.num_bytes) for row in rows]


def being_read(file_id: InstrumentedAttribute[str] | str) -> ColumnElement[bool]:
    """The condition on batches that one is open and reads this file."""
    return (BatchJob.input_file_id == file_id) & BatchJob.status.in_(sorted(OPEN_STATUSES))


def _visible(at: datetime) -> ColumnElement[bool]:
    unexpired = or_(StoredFile.expires_at.is_(None), StoredFile.expires_at > at)
    return _ready() & unexpired


def _ready() -> ColumnElement[bool]:
    return StoredFile.ready_at.is_not(None) & StoredFile.deleted_at.is_(None)


def _require(
    session: Session, project_id: str, file_id: str, at: datetime | None, *, lock: bool = False
) -> StoredFile:
    """Return a file that is there at a time, or, with None, whether it has expired or not."""
    there = _ready() if at is None else _visible(at)
    statement = select(StoredFile).where(StoredFile.id == file_id, StoredFile.project_id == project_id, there)
    file = session.scalar(statement.with_for_update() if lock else statement)
    if file is None:
        raise FileNotFound
    return file
