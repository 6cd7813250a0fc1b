"""Uploads: files that come in parts, each in a request of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from datetime import timedelta

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from models.database import Database, now
from models.errors import Fault, InvalidRequest, UploadNotFound, UploadNotPending
from models.file_assembly import Blob, add_file
from models.file_store import FileStore
from models.ids import new_id
from models.loose_blob import claim, loosen
from models.raw_line import LineCount
from models.tables.file import FilePurpose, StoredFile, Upload, UploadPart, UploadStatus

#: How long a client may take from the announcement to the last part; OpenAI's hour.
_LIFETIME = timedelta(hours=1)


class UploadStore:
    """The uploads of all projects. An upload of another project does not exist here."""

    def __init__(self, database: Database, files: FileStore) -> None:
        self._database = database
        self._files = files

    def create(
        self,
        project_id: str,
        *,
        filename: str,
        mime_type: str,
        num_bytes: int,
        expires_after_seconds: int,
    ) -> Upload:
        """Announce a file of `num_bytes`."""
        with self._database.transaction() as session:
            at = now(session)
            upload = Upload(
                id=new_id("upload"),
                project_id=project_id,
                status=UploadStatus.PENDING,
                purpose=FilePurpose.BATCH,
                filename=filename,
                mime_type=mime_type,
                num_bytes=num_bytes,
                expires_after_seconds=expires_after_seconds,
                created_at=at,
                expires_at=at + _LIFETIME,
            )
            session.add(upload)
            return upload

    def room(self, project_id: str, upload_id: str) -> int:
        """Return how many bytes are still missing. Raises UploadNotFound and UploadNotPending."""
        with self._database.reading() as session:
            upload = _require(session, project_id, upload_id)
            _check_pending(session, upload)
            return upload.num_bytes - _num_bytes(session, upload)

    def add_part(self, project_id: str, upload_id: str, blob: Blob) -> UploadPart:
        """Let an upload have a blob as a part.

        Raises UploadNotFound, UploadNotPending, and InvalidRequest for more bytes than were announced.
        """
        with self._database.transaction() as session:
            upload = _require(session, project_id, upload_id, lock=True)
            _check_pending(session, upload)
            if _num_bytes(session, upload) + blob.num_bytes > upload.num_bytes:
                raise _fault("data", f"The parts have more than the {upload.num_bytes} bytes announced.")
            part = UploadPart(
                id=new_id("part"),
                upload_id=upload.id,
                blob=blob.name,
                num_bytes=blob.num_bytes,
                sha256=blob.sha256,
                created_at=now(session),
            )
            session.add(part)
            claim(session, blob.name)
            return part

    def complete(
        self, project_id: str, upload_id: str, part_ids: Sequence[str], *, md5: str | None
    ) -> tuple[Upload, StoredFile]:
        """Make a file of the parts in the order given; of a completed upload, return the file that it has.

        Nothing is copied, but all is read once. Raises UploadNotFound, UploadNotPending, FileNotFound for a
        file that was deleted since, FileStorageUnavailable, and InvalidRequest for parts that are not what
        was announced.
        """
        with self._database.reading() as session:
            upload = _require(session, project_id, upload_id)
            if upload.file_id is None:
                _check_pending(session, upload)
                parts = _choose(session, upload, part_ids)
        if upload.file_id is not None:
            return upload, self._files.find(project_id, upload.file_id)
        num_lines = self._inspect(parts, md5)
        with self._database.transaction() as session:
            upload = _require(session, project_id, upload_id, lock=True)
            if upload.file_id is None:
                _become_file(session, upload, parts, num_lines=num_lines)
        return upload, self._files.find(project_id, upload.file_id or "")

    def cancel(self, project_id: str, upload_id: str) -> Upload:
        """Give an upload up; a cancelled one stays so. Raises UploadNotFound and UploadNotPending."""
        with self._database.transaction() as session:
            upload = _require(session, project_id, upload_id, lock=True)
            if upload.status != UploadStatus.CANCELLED:
                _check_pending(session, upload)
                upload.status = UploadStatus.CANCELLED
                _drop_parts(session, upload)
            return upload

    def _inspect(self, parts: Sequence[UploadPart], md5: str | None) -> int:
        """Return the number of lines of the whole. Raises InvalidRequest where its MD5 is another."""
        count = LineCount()
        digest = hashlib.md5(usedforsecurity=False)
        for piece in self._pieces(parts):
            count.add(piece)
            if md5 is not None:
                digest.update(piece)
        if md5 is not None and digest.hexdigest() != md5.lower():
            raise _fault("md5", f"The parts have the MD5 {digest.hexdigest()}.")
        return count.num_lines

    def _pieces(self, parts: Sequence[UploadPart]) -> Iterator[bytes]:
        for part in parts:
            yield from self._files.blobs.read(part.blob)


def _choose(session: Session, upload: Upload, part_ids: Sequence[str]) -> list[UploadPart]:
    """Return the parts of these ids, in that order. Raises InvalidRequest."""
    found = {
        part.id: part for part in session.scalars(select(UploadPart).where(UploadPart.upload_id == upload.id))
    }
    if len(set(part_ids)) < len(part_ids):
        raise _fault("part_ids", "A part is named twice.")
    unknown = next((part_id for part_id in part_ids if part_id not in found), None)
    if unknown is not None:
        raise _fault("part_ids", f"The upload has no part {unknown}.")
    parts = [found[part_id] for part_id in part_ids]
    num_bytes = sum(part.num_bytes for part in parts)
    if num_bytes != upload.num_bytes:
        raise _fault("part_ids", f"The parts have {num_bytes} bytes, not the {upload.num_bytes} announced.")
    return parts


def _become_file(session: Session, upload: Upload, parts: Sequence[UploadPart], *, num_lines: int) -> None:
    _check_pending(session, upload)
    used = delete(UploadPart).where(UploadPart.id.in_([part.id for part in parts]))
    session.execute(used, execution_options={"synchronize_session": False})
    _drop_parts(session, upload)
    file = add_file(
        session,
        upload.project_id,
        purpose=FilePurpose(upload.purpose),
        filename=upload.filename,
        parts=[Blob(part.blob, part.num_bytes, part.sha256, 0) for part in parts],
        expires_after_seconds=upload.expires_after_seconds,
        num_lines=num_lines,
    )
    upload.status = UploadStatus.COMPLETED
    upload.file_id = file.id


def _drop_parts(session: Session, upload: Upload) -> None:
    """Let all parts that an upload still has be loose blobs."""
    loosen(session, select(UploadPart.blob).where(UploadPart.upload_id == upload.id), now(session))
    rest = delete(UploadPart).where(UploadPart.upload_id == upload.id)
    session.execute(rest, execution_options={"synchronize_session": False})


def _num_bytes(session: Session, upload: Upload) -> int:
    total = select(func.coalesce(func.sum(UploadPart.num_bytes), 0)).where(UploadPart.upload_id == upload.id)
    return int(session.scalars(total).one())


def _require(session: Session, project_id: str, upload_id: str, *, lock: bool = False) -> Upload:
    statement = select(Upload).where(Upload.id == upload_id, Upload.project_id == project_id)
    upload = session.scalar(statement.with_for_update() if lock else statement)
    if upload is None:
        raise UploadNotFound
    return upload


def _check_pending(session: Session, upload: Upload) -> None:
    """Raise UploadNotPending for an upload that is over, whether or not that was noted yet."""
    is_late = upload.status == UploadStatus.PENDING and upload.expires_at <= now(session)
    status = UploadStatus.EXPIRED if is_late else upload.status
    if status != UploadStatus.PENDING:
        raise UploadNotPending(f"The upload is {status}: nothing can be added to it.")


def _fault(param: str, message: str) -> InvalidRequest:
    return InvalidRequest([Fault("invalid_value", message, param)])
