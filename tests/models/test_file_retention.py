from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import select

from models.blob_store import BlobStore
from models.database import Database, now
from models.errors import FileNotFound, FileStorageUnavailable
from models.file_retention import FileRetention
from models.file_store import Blob, FileStore
from models.ids import new_id
from models.tables.batch_job import BatchJob, BatchStatus
from models.tables.file import FilePart, FilePurpose, LooseBlob, StoredFile, Upload, UploadPart
from models.upload_store import UploadStore

_NOTHING = {
    "uploads_expired": 0,
    "uploads_forgotten": 0,
    "files_expired": 0,
    "parts_removed": 0,
    "files_removed": 0,
    "blobs_removed": 0,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "files"


@pytest.fixture
def files(database: Database, folder: Path) -> FileStore:
    return FileStore(database, BlobStore(str(folder)))


@pytest.fixture
def uploads(database: Database, files: FileStore) -> UploadStore:
    return UploadStore(database, files)


@pytest.fixture
def retention(database: Database, files: FileStore) -> FileRetention:
    """Keeps uploads that are over for ten days."""
    return FileRetention(database, files.blobs, history_seconds=10 * 86400.0)


def put(files: FileStore, content: bytes = b"x") -> Blob:
    with files.writer() as writer:
        writer.write(content)
    return Blob.of(writer)


def add(files: FileStore, project_id: str, *parts: Blob) -> StoredFile:
    return files.add(
        project_id,
        purpose=FilePurpose.BATCH,
        filename="a",
        parts=parts,
        expires_after_seconds=3600,
        num_lines=1,
    )


def pass_time(database: Database, **more: float) -> None:
    """Let so much time pass for every file, upload and blob."""
    passed = timedelta(**more)
    with database.transaction() as session:
        for row in (*session.scalars(select(StoredFile)), *session.scalars(select(Upload))):
            if row.expires_at is not None:
                row.expires_at -= passed
        for blob in session.scalars(select(LooseBlob)):
            blob.due_at -= passed


def on_disk(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_there_is_nothing_to_do_where_all_is_in_use(
    files: FileStore, retention: FileRetention, project_id: str, folder: Path
) -> None:
    parts = put(files), put(files)
    add(files, project_id, *parts)

    assert retention.forget() == _NOTHING
    assert on_disk(folder) == {part.name for part in parts}


def test_a_deleted_file_goes_at_once_and_its_blobs_ten_minutes_later(
    database: Database, files: FileStore, retention: FileRetention, project_id: str, folder: Path
) -> None:
    kept, gone = put(files), put(files)
    add(files, project_id, kept)
    file = add(files, project_id, gone)
    files.delete(project_id, file.id)

    assert retention.forget() == {**_NOTHING, "parts_removed": 1, "files_removed": 1}
    assert on_disk(folder) == {kept.name, gone.name}

    pass_time(database, minutes=10)

    assert retention.forget() == {**_NOTHING, "blobs_removed": 1}
    assert on_disk(folder) == {kept.name}
    assert retention.forget() == _NOTHING
    with database.reading() as session:
        assert session.scalars(select(LooseBlob)).all() == []


def test_an_expired_file_goes_unless_an_open_batch_reads_it(
    database: Database, files: FileStore, retention: FileRetention, project_id: str
) -> None:
    read, idle = add(files, project_id, put(files)), add(files, project_id, put(files))
    with database.transaction() as session:
        batch = BatchJob(id=new_id("batch"), project_id=project_id, status=BatchStatus.FINALIZING)
        batch.total = batch.queued = 0
        batch.created_at, batch.input_file_id = now(session), read.id
        session.add(batch)
    pass_time(database, hours=2)

    removed = retention.forget()

    assert (removed["files_expired"], removed["files_removed"]) == (1, 1)
    assert b"".join(files.read(files.find_input(project_id, read.id))) == b"x"
    with pytest.raises(FileNotFound):
        files.find_input(project_id, idle.id)

    with database.transaction() as session:
        session.get_one(BatchJob, batch.id).status = BatchStatus.COMPLETED

    assert retention.forget()["files_removed"] == 1


def test_a_blob_that_became_a_part_of_nothing_goes_after_a_day(
    database: Database, files: FileStore, retention: FileRetention, folder: Path
) -> None:
    lost = put(files)

    pass_time(database, hours=23)
    assert retention.forget() == _NOTHING
    assert on_disk(folder) == {lost.name}

    pass_time(database, hours=2)
    assert retention.forget() == {**_NOTHING, "blobs_removed": 1}
    assert on_disk(folder) == set()


def test_who_died_before_the_blob_was_there_leaves_no_trace(
    database: Database, files: FileStore, retention: FileRetention, folder: Path
) -> None:
    blob = put(files)
    (folder / blob.name).unlink()
    pass_time(database, days=2)

    assert retention.forget()["blobs_removed"] == 1
    assert retention.forget() == _NOTHING


def test_an_upload_whose_time_is_up_goes_with_its_parts(
    database: Database,
    files: FileStore,
    uploads: UploadStore,
    retention: FileRetention,
    project_id: str,
    folder: Path,
) -> None:
    upload = uploads.create(
        project_id, filename="a", mime_type="text/plain", num_bytes=2, expires_after_seconds=3600
    )
    uploads.add_part(project_id, upload.id, put(files))
    pass_time(database, hours=1)

    assert retention.forget() == {**_NOTHING, "uploads_expired": 1}
    with database.reading() as session:
        assert session.get_one(Upload, upload.id).status == "expired"
        assert session.scalars(select(UploadPart)).all() == []

    pass_time(database, minutes=10)
    assert retention.forget() == {**_NOTHING, "blobs_removed": 1}
    assert on_disk(folder) == set()

    pass_time(database, days=10)
    assert retention.forget() == {**_NOTHING, "uploads_forgotten": 1}


def test_a_store_that_fails_keeps_the_names_and_all_else_goes_on(
    database: Database,
    files: FileStore,
    retention: FileRetention,
    project_id: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blob = put(files)
    pass_time(database, days=2)
    files.delete(project_id, add(files, project_id, put(files)).id)

    def fail(_name: str) -> None:
        raise FileStorageUnavailable

    with monkeypatch.context() as patch:
        patch.setattr(files.blobs, "delete", fail)
        with pytest.raises(FileStorageUnavailable):
            retention.forget()

    with database.reading() as session:
        assert session.scalars(select(FilePart)).all() == []
        assert blob.name in session.scalars(select(LooseBlob.blob)).all()
    assert retention.forget() == _NOTHING
    pass_time(database, minutes=10)
    assert retention.forget() == {**_NOTHING, "blobs_removed": 2}


def test_more_than_one_chunk_goes_in_one_go(
    database: Database, files: FileStore, retention: FileRetention, project_id: str
) -> None:
    with database.transaction() as session:
        file = files.begin_output(session, project_id, filename="a", at=now(session))
        session.add_all(
            FilePart(file_id=file.id, number=n, blob=f"b{n}", num_bytes=1, sha256="") for n in range(450)
        )
        files.drop(session, file, now(session))

    assert retention.forget() == {**_NOTHING, "parts_removed": 450, "files_removed": 1}
    pass_time(database, minutes=10)
    assert retention.forget() == {**_NOTHING, "blobs_removed": 450}
