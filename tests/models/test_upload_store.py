from __future__ import annotations

import hashlib
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import select, update

from models.blob_store import BlobStore
from models.database import Database, now
from models.errors import FileNotFound, InvalidRequest, UploadNotFound, UploadNotPending
from models.file_store import Blob, FileStore
from models.tables.file import LooseBlob, Upload, UploadPart
from models.upload_store import UploadStore
from tests.models.statements import recorded


@pytest.fixture
def files(database: Database, tmp_path: Path) -> FileStore:
    return FileStore(database, BlobStore(str(tmp_path / "files")))


@pytest.fixture
def uploads(database: Database, files: FileStore) -> UploadStore:
    return UploadStore(database, files)


def begin(uploads: UploadStore, project_id: str, num_bytes: int) -> str:
    return uploads.create(
        project_id,
        filename="in.jsonl",
        mime_type="application/jsonl",
        num_bytes=num_bytes,
        expires_after_seconds=7200,
    ).id


def add(uploads: UploadStore, files: FileStore, project_id: str, upload_id: str, content: bytes) -> str:
    with files.writer() as writer:
        writer.write(content)
    return uploads.add_part(project_id, upload_id, Blob.of(writer)).id


def expire(database: Database) -> None:
    with database.transaction() as session:
        session.execute(update(Upload).values(expires_at=now(session) - timedelta(seconds=1)))


def test_parts_become_a_file_in_the_order_that_is_named(
    database: Database, uploads: UploadStore, files: FileStore, project_id: str
) -> None:
    upload_id = begin(uploads, project_id, 8)
    last = add(uploads, files, project_id, upload_id, b"wo\n3")
    first = add(uploads, files, project_id, upload_id, b"1\n\nt")
    md5 = hashlib.md5(b"1\n\ntwo\n3").hexdigest().upper()

    upload, file = uploads.complete(project_id, upload_id, [first, last], md5=md5)

    assert (upload.status, upload.file_id) == ("completed", file.id)
    assert b"".join(files.read(file)) == b"1\n\ntwo\n3"
    assert (file.num_bytes, file.num_lines, file.filename) == (8, 4, "in.jsonl")
    assert file.expires_at == file.created_at + timedelta(hours=2)
    with database.reading() as session:
        assert session.scalars(select(UploadPart)).all() == []
        assert session.scalars(select(LooseBlob)).all() == []


def test_completing_again_gives_the_same_file(
    uploads: UploadStore, files: FileStore, project_id: str
) -> None:
    upload_id = begin(uploads, project_id, 1)
    part_id = add(uploads, files, project_id, upload_id, b"x")
    _, file = uploads.complete(project_id, upload_id, [part_id], md5=None)

    upload, again = uploads.complete(project_id, upload_id, [part_id], md5=None)

    assert (upload.status, again.id) == ("completed", file.id)
    files.delete(project_id, file.id)
    with pytest.raises(FileNotFound):
        uploads.complete(project_id, upload_id, [part_id], md5=None)


def test_parts_that_are_not_named_are_dropped(
    database: Database, uploads: UploadStore, files: FileStore, project_id: str
) -> None:
    upload_id = begin(uploads, project_id, 4)
    add(uploads, files, project_id, upload_id, b"no")
    used = add(uploads, files, project_id, upload_id, b"ye")
    with database.transaction() as session:
        session.get_one(Upload, upload_id).num_bytes = 2

    _, file = uploads.complete(project_id, upload_id, [used], md5=None)

    assert b"".join(files.read(file)) == b"ye"
    with database.reading() as session:
        assert len(session.scalars(select(LooseBlob)).all()) == 1


def test_many_parts_become_a_file_by_as_few_statements(
    database: Database, uploads: UploadStore, files: FileStore, project_id: str
) -> None:
    def num_statements(num_parts: int) -> int:
        upload_id = begin(uploads, project_id, num_parts)
        part_ids = [add(uploads, files, project_id, upload_id, b"x") for _ in range(num_parts)]
        with recorded(database) as statements:
            _, file = uploads.complete(project_id, upload_id, part_ids, md5=None)
        assert b"".join(files.read(file)) == b"x" * num_parts
        return len(statements)

    assert num_statements(20) == num_statements(2)


def test_an_upload_may_be_empty(uploads: UploadStore, files: FileStore, project_id: str) -> None:
    _, file = uploads.complete(project_id, begin(uploads, project_id, 0), [], md5=None)

    assert b"".join(files.read(file)) == b""


def test_what_is_not_as_announced_is_refused_and_can_be_mended(
    uploads: UploadStore, files: FileStore, project_id: str
) -> None:
    upload_id = begin(uploads, project_id, 3)
    one = add(uploads, files, project_id, upload_id, b"a")
    two = add(uploads, files, project_id, upload_id, b"bc")
    foreign = add(uploads, files, project_id, begin(uploads, project_id, 2), b"bc")

    def refusal(part_ids: list[str], md5: str | None = None) -> tuple[str | None, str]:
        with pytest.raises(InvalidRequest) as caught:
            uploads.complete(project_id, upload_id, part_ids, md5=md5)
        return caught.value.param, caught.value.message

    assert refusal([one]) == ("part_ids", "The parts have 1 bytes, not the 3 announced.")
    assert refusal([one, one, two]) == ("part_ids", "A part is named twice.")
    assert refusal([one, foreign]) == ("part_ids", f"The upload has no part {foreign}.")
    assert refusal([one, two], "0" * 32) == (
        "md5",
        "The parts have the MD5 900150983cd24fb0d6963f7d28e17f72.",
    )
    uploads.complete(project_id, upload_id, [one, two], md5="900150983cd24fb0d6963f7d28e17f72")


def test_more_than_was_announced_is_refused(uploads: UploadStore, files: FileStore, project_id: str) -> None:
    upload_id = begin(uploads, project_id, 3)
    add(uploads, files, project_id, upload_id, b"ab")
    assert uploads.room(project_id, upload_id) == 1

    with pytest.raises(InvalidRequest, match="more than the 3 bytes"):
        add(uploads, files, project_id, upload_id, b"cd")

    assert uploads.room(project_id, upload_id) == 1


def test_a_cancelled_upload_takes_nothing_more(
    database: Database, uploads: UploadStore, files: FileStore, project_id: str
) -> None:
    upload_id = begin(uploads, project_id, 3)
    part_id = add(uploads, files, project_id, upload_id, b"abc")

    assert uploads.cancel(project_id, upload_id).status == "cancelled"
    assert uploads.cancel(project_id, upload_id).status == "cancelled"

    with pytest.raises(UploadNotPending, match="The upload is cancelled"):
        add(uploads, files, project_id, upload_id, b"")
    with pytest.raises(UploadNotPending):
        uploads.complete(project_id, upload_id, [part_id], md5=None)
    with database.reading() as session:
        assert session.scalars(select(UploadPart)).all() == []


def test_a_completed_upload_cannot_be_cancelled(uploads: UploadStore, project_id: str) -> None:
    upload_id = begin(uploads, project_id, 0)
    uploads.complete(project_id, upload_id, [], md5=None)

    with pytest.raises(UploadNotPending, match="The upload is completed"):
        uploads.cancel(project_id, upload_id)


def test_time_ends_an_upload_before_anybody_has_noted_it(
    database: Database, uploads: UploadStore, files: FileStore, project_id: str
) -> None:
    upload_id = begin(uploads, project_id, 1)
    part_id = add(uploads, files, project_id, upload_id, b"x")
    expire(database)

    for call in (
        lambda: uploads.room(project_id, upload_id),
        lambda: add(uploads, files, project_id, upload_id, b""),
        lambda: uploads.complete(project_id, upload_id, [part_id], md5=None),
        lambda: uploads.cancel(project_id, upload_id),
    ):
        with pytest.raises(UploadNotPending, match="The upload is expired"):
            call()


def test_an_upload_of_another_project_does_not_exist(
    uploads: UploadStore, files: FileStore, project_id: str
) -> None:
    upload_id = begin(uploads, project_id, 1)

    for call in (
        lambda: uploads.room("proj_other", upload_id),
        lambda: add(uploads, files, "proj_other", upload_id, b""),
        lambda: uploads.complete("proj_other", upload_id, [], md5=None),
        lambda: uploads.cancel("proj_other", upload_id),
    ):
        with pytest.raises(UploadNotFound):
            call()
