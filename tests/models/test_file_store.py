from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import select, update

from models.blob_store import BlobStore
from models.database import Database, now
from models.errors import FileInUse, FileNotFound, FileStorageUnavailable
from models.file_store import Blob, FileStore, RawLine
from models.ids import new_id
from models.tables.batch_job import BatchJob, BatchStatus
from models.tables.file import FilePart, FilePurpose, LooseBlob, StoredFile


@pytest.fixture
def files(database: Database, tmp_path: Path) -> FileStore:
    return FileStore(database, BlobStore(str(tmp_path / "files")))


def add(files: FileStore, project_id: str, *contents: bytes, **more: object) -> StoredFile:
    """Add a file of parts."""
    blobs = []
    for content in contents:
        with files.writer() as writer:
            writer.write(content)
        blobs.append(Blob.of(writer))
    given = {
        "purpose": FilePurpose.BATCH,
        "filename": "in.jsonl",
        "expires_after_seconds": None,
        "num_lines": 0,
    }
    return files.add(project_id, parts=blobs, **{**given, **more})  # type: ignore[arg-type]


def expire(database: Database, file: StoredFile) -> None:
    with database.transaction() as session:
        session.execute(
            update(StoredFile)
            .where(StoredFile.id == file.id)
            .values(expires_at=now(session) - timedelta(seconds=1))
        )


def add_batch(database: Database, project_id: str, file: StoredFile, status: BatchStatus) -> str:
    with database.transaction() as session:
        batch = BatchJob(
            id=new_id("batch"),
            project_id=project_id,
            status=status,
            total=0,
            queued=0,
            created_at=now(session),
            input_file_id=file.id,
        )
        session.add(batch)
        return batch.id


def test_a_file_is_its_parts_one_after_the_other(files: FileStore, project_id: str) -> None:
    file = add(files, project_id, b"one\ntw", b"", b"o\nthree", num_lines=3)

    found = files.find(project_id, file.id)

    assert (found.num_bytes, found.num_lines, found.filename) == (13, 3, "in.jsonl")
    assert b"".join(files.read(found)) == b"one\ntwo\nthree"


@pytest.mark.parametrize(
    ("start", "length", "content"),
    [(0, 4, b"0123"), (2, 3, b"234"), (3, None, b"3456789"), (9, 5, b"9"), (10, None, b""), (4, 3, b"456")],
)
def test_a_range_crosses_parts(
    files: FileStore, project_id: str, start: int, length: int | None, content: bytes
) -> None:
    file = add(files, project_id, b"0123", b"456", b"789")

    assert b"".join(files.read(file, start=start, length=length)) == content


def test_lines_say_where_they_begin_across_parts(files: FileStore, project_id: str) -> None:
    file = add(files, project_id, b"ab\r\nc", b"d\n\nlast")

    assert list(files.lines(file, max_bytes=10)) == [
        RawLine(0, b"ab"),
        RawLine(4, b"cd"),
        RawLine(7, b""),
        RawLine(8, b"last"),
    ]
    assert list(files.lines(file, offset=7, max_bytes=10)) == [RawLine(7, b""), RawLine(8, b"last")]


def test_a_foreign_file_does_not_exist(files: FileStore, project_id: str) -> None:
    file = add(files, project_id, b"x")

    for call in (files.find, files.find_input, files.delete):
        with pytest.raises(FileNotFound):
            call("proj_other", file.id)
    assert files.page("proj_other", limit=10) == ([], False)


def test_an_expired_file_is_there_for_its_batch_only(
    database: Database, files: FileStore, project_id: str
) -> None:
    file = add(files, project_id, b"x", expires_after_seconds=3600)
    assert file.expires_at == file.created_at + timedelta(hours=1)

    expire(database, file)

    with pytest.raises(FileNotFound):
        files.find(project_id, file.id)
    assert files.find_input(project_id, file.id).id == file.id
    assert files.page(project_id, limit=10) == ([], False)


def test_a_deleted_file_is_gone_at_once(files: FileStore, project_id: str) -> None:
    file = add(files, project_id, b"x")

    files.delete(project_id, file.id)

    with pytest.raises(FileNotFound):
        files.find(project_id, file.id)
    with pytest.raises(FileNotFound):
        files.delete(project_id, file.id)


def test_what_an_open_batch_reads_cannot_be_deleted(
    database: Database, files: FileStore, project_id: str
) -> None:
    file = add(files, project_id, b"x")
    add_batch(database, project_id, file, BatchStatus.COMPLETED)
    batch_id = add_batch(database, project_id, file, BatchStatus.CANCELLING)

    with pytest.raises(FileInUse, match=batch_id):
        files.delete(project_id, file.id)

    assert files.find(project_id, file.id).id == file.id


def test_pages_go_by_time_in_both_orders(files: FileStore, project_id: str) -> None:
    ids = [add(files, project_id, b"x").id for _ in range(3)]
    other = add(files, project_id, b"x", purpose=FilePurpose.BATCH_OUTPUT).id

    def page(**query: object) -> tuple[list[str], bool]:
        found, has_more = files.page(project_id, **query)  # type: ignore[arg-type]
        return [file.id for file in found], has_more

    assert page(limit=10) == ([other, *reversed(ids)], False)
    assert page(limit=2, purpose=FilePurpose.BATCH) == ([ids[2], ids[1]], True)
    assert page(limit=2, purpose=FilePurpose.BATCH, after=ids[1]) == ([ids[0]], False)
    assert page(limit=2, order="asc", after=ids[0]) == ([ids[1], ids[2]], True)


def test_an_output_is_seen_once_it_is_finished(database: Database, files: FileStore, project_id: str) -> None:
    with database.transaction() as session:
        file = files.begin_output(session, project_id, filename="out.jsonl", at=now(session))
    for content in (b"one\n", b"two\nthree\n"):
        with files.writer() as writer:
            writer.write(content)
        with database.transaction() as session:
            files.append_part(session, file, Blob.of(writer))
    with pytest.raises(FileNotFound):
        files.find(project_id, file.id)

    with database.transaction() as session:
        files.finish_output(session, file, at=now(session), expires_at=None)

    found = files.find(project_id, file.id)
    assert (found.num_bytes, found.num_lines, found.purpose) == (14, 3, "batch_output")
    assert b"".join(files.read(found)) == b"one\ntwo\nthree\n"


def test_a_dropped_output_is_never_seen(database: Database, files: FileStore, project_id: str) -> None:
    with database.transaction() as session:
        file = files.begin_output(session, project_id, filename="out.jsonl", at=now(session))
        files.drop(session, file, now(session))

    with pytest.raises(FileNotFound):
        files.find_input(project_id, file.id)


def test_a_blob_is_loose_until_it_is_a_part(database: Database, files: FileStore, project_id: str) -> None:
    with files.writer() as writer:
        writer.write(b"x")
        with database.reading() as session:
            assert session.scalars(select(LooseBlob.blob)).all() == [writer.name]

    file = files.add(
        project_id,
        purpose=FilePurpose.BATCH,
        filename="a",
        parts=[Blob.of(writer)],
        expires_after_seconds=None,
        num_lines=1,
    )

    with database.reading() as session:
        assert session.scalars(select(LooseBlob)).all() == []
        assert session.scalars(select(FilePart.blob).where(FilePart.file_id == file.id)).all() == [
            writer.name
        ]


@pytest.mark.parametrize("left", [timedelta(minutes=9), timedelta(days=-1)])
def test_a_blob_that_is_removed_soon_becomes_no_part(
    database: Database, files: FileStore, project_id: str, left: timedelta
) -> None:
    with files.writer() as writer:
        writer.write(b"x")
    with database.transaction() as session:
        session.get_one(LooseBlob, writer.name).due_at = now(session) + left

    with pytest.raises(FileStorageUnavailable, match="given up"):
        files.add(
            project_id,
            purpose=FilePurpose.BATCH,
            filename="a",
            parts=[Blob.of(writer)],
            expires_after_seconds=None,
            num_lines=1,
        )

    assert files.page(project_id, limit=1) == ([], False)
