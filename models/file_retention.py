"""Retention of files: what has expired goes, and the blobs of what is gone leave the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import structlog
from sqlalchemy import delete, exists, select, update
from sqlalchemy.orm import Session

from models.blob_store import BlobStore
from models.database import Database, now
from models.file_store import being_read
from models.loose_blob import forget_blobs, loosen, take_due
from models.tables.file import FilePart, StoredFile, Upload, UploadPart, UploadStatus

_log = structlog.get_logger()

#: Rows that one transaction takes, and transactions of one kind in one go.
_CHUNK = 200
_MAX_CHUNKS = 50
_MAX_BLOB_CHUNKS = 10
#: A file goes so long after its time is up: a batch that has just taken it is seen by then.
_LATE = timedelta(minutes=1)

_UNSYNCHRONIZED = {"synchronize_session": False}


class FileRetention:
    """Removes files and uploads that are over. May run in several places at once, and die at any point."""

    def __init__(self, database: Database, blobs: BlobStore, *, history_seconds: float) -> None:
        self._database = database
        self._blobs = blobs
        self._history = timedelta(seconds=history_seconds)

    def forget(self) -> dict[str, int]:
        """Remove what is over, in short transactions, and return how many rows and blobs of each kind.

        The input of an open batch stays, even when it has expired. Bounded: what is left over is for the next
        time. Raises DatabaseUnavailable, and FileStorageUnavailable once all else is done.
        """
        removed = {
            "uploads_expired": self._repeat(_expire_uploads),
            "uploads_forgotten": self._repeat(self._forget_uploads),
            "files_expired": self._repeat(_expire_files),
            "parts_removed": self._repeat(_remove_parts),
            "files_removed": self._repeat(_remove_files),
        }
        try:
            removed["blobs_removed"] = self._repeat_blobs()
        finally:
            if any(removed.values()):
                _log.info("files_removed", **removed)
        return removed

    def _repeat(self, take: Callable[[Session, datetime], int]) -> int:
        total = 0
        for _ in range(_MAX_CHUNKS):
            with self._database.transaction() as session:
                taken = take(session, now(session))
            total += taken
            if taken < _CHUNK:
                break
        return total

    def _forget_uploads(self, session: Session, at: datetime) -> int:
        old = select(Upload.id).where(
            Upload.expires_at < at - self._history, Upload.status != UploadStatus.PENDING
        )
        gone = delete(Upload).where(Upload.id.in_(old.limit(_CHUNK))).returning(Upload.id)
        return len(session.execute(gone, execution_options=_UNSYNCHRONIZED).all())

    def _repeat_blobs(self) -> int:
        total = 0
        for _ in range(_MAX_BLOB_CHUNKS):
            with self._database.transaction() as session:
                names = take_due(session, now(session), _CHUNK)
            self._remove_blobs(names)
            total += len(names)
            if len(names) < _CHUNK:
                break
        return total

    def _remove_blobs(self, names: Sequence[str]) -> None:
        # Names go last: who dies in between leaves them for the next one, and a blob may be removed twice.
        removed: list[str] = []
        try:
            for name in names:
                self._blobs.delete(name)
                removed.append(name)
        finally:
            with self._database.transaction() as session:
                forget_blobs(session, removed)


def _expire_uploads(session: Session, at: datetime) -> int:
    """Let uploads be over whose time is up."""
    late = select(Upload.id).where(Upload.status == UploadStatus.PENDING, Upload.expires_at <= at)
    ids = session.scalars(late.order_by(Upload.id).limit(_CHUNK).with_for_update(skip_locked=True)).all()
    loosen(session, select(UploadPart.blob).where(UploadPart.upload_id.in_(ids)), at)
    for statement in (
        delete(UploadPart).where(UploadPart.upload_id.in_(ids)),
        update(Upload).where(Upload.id.in_(ids)).values(status=UploadStatus.EXPIRED),
    ):
        session.execute(statement, execution_options=_UNSYNCHRONIZED)
    return len(ids)


def _expire_files(session: Session, at: datetime) -> int:
    """Delete files whose time is up, unless a batch still reads them."""
    late = select(StoredFile.id).where(
        StoredFile.expires_at <= at - _LATE,
        StoredFile.deleted_at.is_(None),
        ~exists().where(being_read(StoredFile.id)),
    )
    ids = session.scalars(late.order_by(StoredFile.id).limit(_CHUNK).with_for_update(skip_locked=True)).all()
    gone = update(StoredFile).where(StoredFile.id.in_(ids)).values(deleted_at=at)
    session.execute(gone, execution_options=_UNSYNCHRONIZED)
    return len(ids)


def _remove_parts(session: Session, at: datetime) -> int:
    """Take the blobs out of deleted files."""
    parts = session.execute(
        select(FilePart.file_id, FilePart.blob)
        .join(StoredFile, StoredFile.id == FilePart.file_id)
        .where(StoredFile.deleted_at.is_not(None))
        .limit(_CHUNK)
        .with_for_update(of=FilePart, skip_locked=True)
    ).all()
    # By their files too, whose index serves: blobs have none.
    chosen = FilePart.file_id.in_({part.file_id for part in parts}) & FilePart.blob.in_(
        [part.blob for part in parts]
    )
    loosen(session, select(FilePart.blob).where(chosen), at)
    gone = delete(FilePart).where(chosen)
    session.execute(gone, execution_options=_UNSYNCHRONIZED)
    return len(parts)


def _remove_files(session: Session, _at: datetime) -> int:
    """Remove deleted files that have no parts any more."""
    empty = select(StoredFile.id).where(
        StoredFile.deleted_at.is_not(None), ~exists().where(FilePart.file_id == StoredFile.id)
    )
    ids = session.scalars(empty.limit(_CHUNK).with_for_update(skip_locked=True)).all()
    gone = delete(StoredFile).where(StoredFile.id.in_(ids))
    session.execute(gone, execution_options=_UNSYNCHRONIZED)
    return len(ids)
