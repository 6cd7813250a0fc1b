from __future__ import annotations

import hashlib
import multiprocessing
from pathlib import Path

import fsspec
import pytest

from models.blob_store import BlobStore, new_blob_name
from models.errors import FileStorageUnavailable, StartupError
from tests.services.s3_server import S3Server


@pytest.fixture(params=["folder", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder, and a bucket of a server that speaks S3's protocol."""
    if request.param == "folder":
        return str(tmp_path / "files")
    server: S3Server = request.getfixturevalue("s3_server")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return server.create_bucket()


@pytest.fixture
def blobs(url: str) -> BlobStore:
    return BlobStore(url)


def stored(url: str) -> list[str]:
    """The names of all blobs."""
    files, root = fsspec.url_to_fs(url, use_listings_cache=False)
    return [name.rpartition("/")[2] for name in files.find(root)]


def unfinished(url: str) -> list[str]:
    """The names of what a bucket still awaits more pieces of, which costs money and is not listed."""
    if not url.startswith("s3://"):
        return []
    files, root = fsspec.url_to_fs(url, use_listings_cache=False)
    found = files.call_s3("list_multipart_uploads", Bucket=root.partition("/")[0])
    return [upload["Key"] for upload in found.get("Uploads", [])]


def put(blobs: BlobStore, data: bytes) -> str:
    name = new_blob_name()
    with blobs.writer(name) as writer:
        writer.write(data)
    return name


def read(blobs: BlobStore, name: str, *, start: int = 0, length: int | None = None) -> bytes:
    return b"".join(blobs.read(name, start=start, length=length))


def test_what_was_written_is_read_back(blobs: BlobStore) -> None:
    with blobs.writer("one") as writer:
        writer.write(b"first\nsec")
        writer.write(b"")
        writer.write(b"ond")

    assert read(blobs, "one") == b"first\nsecond"
    assert (writer.num_bytes, writer.num_lines) == (12, 2)
    assert writer.sha256 == hashlib.sha256(b"first\nsecond").hexdigest()


@pytest.mark.parametrize(
    ("start", "length", "found"),
    [(0, 3, b"012"), (7, None, b"789"), (7, 100, b"789"), (10, None, b""), (4, 0, b"")],
)
def test_a_range_is_read(blobs: BlobStore, start: int, length: int | None, found: bytes) -> None:
    name = put(blobs, b"0123456789")

    assert read(blobs, name, start=start, length=length) == found


def test_a_long_blob_comes_in_pieces(blobs: BlobStore) -> None:
    data = bytes(range(256)) * 4096 * 20
    name = put(blobs, data)

    pieces = list(blobs.read(name))

    assert b"".join(pieces) == data
    assert max(map(len, pieces)) == 2**20


@pytest.mark.parametrize("num_mebibytes", [0, 20])
def test_nothing_is_left_of_what_was_broken_off(blobs: BlobStore, url: str, num_mebibytes: int) -> None:
    def break_off() -> None:
        with blobs.writer("half") as writer:
            writer.write(b"x")
            for _ in range(num_mebibytes):
                writer.write(b"x" * 2**20)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        break_off()

    assert stored(url) == []
    assert unfinished(url) == []
    with pytest.raises(FileStorageUnavailable):
        read(blobs, "half")


def test_a_deleted_blob_is_gone_however_often(blobs: BlobStore, url: str) -> None:
    name = put(blobs, b"x")

    blobs.delete(name)
    blobs.delete(name)

    assert stored(url) == []


def test_a_store_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "files").write_text("a file where the folder should be")

    with pytest.raises(FileStorageUnavailable, match="fails at"):
        put(BlobStore(str(tmp_path / "files")), b"x")


@pytest.mark.parametrize("url", ["memory://x", "simplecache::s3://b", "nonsense://x"])
def test_a_place_that_processes_do_not_share_is_refused(url: str) -> None:
    with pytest.raises(StartupError, match="HEADRACE_FILES_URL"):
        BlobStore(url)


def test_a_forked_process_opens_its_own(blobs: BlobStore) -> None:
    name = put(blobs, b"before")
    context = multiprocessing.get_context("fork")
    child = context.Process(target=_write_and_read, args=(blobs, name))

    child.start()
    child.join(30)

    assert child.exitcode == 0
    assert read(blobs, "of the child") == b"before"


def _write_and_read(blobs: BlobStore, name: str) -> None:
    data = read(blobs, name)
    with blobs.writer("of the child") as writer:
        writer.write(data)
