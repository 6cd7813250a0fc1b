"""Files and uploads over a real connection: the stock SDK, and clients that break off."""

from __future__ import annotations

import hashlib
import io
import shutil
import socket
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import openai
import psutil
import pytest
from pydantic import SecretStr

from models.settings import Settings
from tests.api.conftest import KEY
from tests.api.served import Served, starting
from tests.api.worker import MODEL
from tests.services.redis_server import ValkeyServer

LINES = b'{"custom_id":"a"}\n{"custom_id":"b"}\n'
MAX_FILE_BYTES = 64 * 2**20
MAX_MEMORY_GROWTH_BYTES = 24 * 2**20

FORM = (
    b'--edge\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    b'--edge\r\nContent-Disposition: form-data; name="file"; filename="in.jsonl"\r\n\r\n' + LINES + b"\r\n"
)
END = b"--edge--\r\n"


@pytest.fixture(scope="module")
def files_settings(
    tmp_path_factory: pytest.TempPathFactory, migrated_file: Path, valkey_server: ValkeyServer
) -> Settings:
    folder = tmp_path_factory.mktemp("served")
    shutil.copy(migrated_file, folder / "headrace.db")
    # Read in an empty folder: `.env` and `headrace.toml` are looked up in the working one.
    with chdir(tmp_path_factory.mktemp("empty")):
        return Settings(
            data_dir=folder,
            redis_url=valkey_server.url,
            served_model_name=MODEL,
            api_key=SecretStr(KEY),
            port=0,
            max_file_bytes=MAX_FILE_BYTES,
        )


@pytest.fixture(scope="module")
def served(files_settings: Settings) -> Iterator[Served]:
    """One server for all these tests."""
    with starting(files_settings, HEADRACE_LOG_FORMAT="json") as process:
        yield Served(process)


@pytest.fixture
def sdk(served: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key=KEY) as client:
        yield client


def blobs(settings: Settings) -> set[Path]:
    folder = settings.data_dir / "files"
    return set(folder.iterdir()) if folder.exists() else set()


def post(served: Served, *pieces: bytes, head: str) -> str:
    """Send a form, stop sending, and return the answer; its first line is the status."""
    host, _, port = served.url.removeprefix("http://").partition(":")
    start = f"POST /v1/files HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nConnection: close\r\n"
    start += f"Content-Type: multipart/form-data; boundary=edge\r\n{head}\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=45) as connection:
        connection.sendall(start.encode())
        for piece in pieces:
            connection.sendall(piece)
        connection.shutdown(socket.SHUT_WR)
        return connection.makefile().read()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


# The first of all, since it is about the most memory that was ever taken.
def test_memory_stays_flat_up_and_down(served: Served, sdk: openai.OpenAI) -> None:
    (worker,) = psutil.Process(served.process.pid).children()
    content = b"x" * 99 + b"\n"
    small = sdk.files.create(file=content, purpose="batch")
    sdk.files.content(small.id).read()
    before = peak_bytes(worker)

    file = sdk.files.create(file=content * (MAX_FILE_BYTES // 100), purpose="batch")
    assert len(sdk.files.content(file.id).read()) == file.bytes

    assert peak_bytes(worker) - before < MAX_MEMORY_GROWTH_BYTES


def test_the_stock_sdk_hands_in_reads_and_deletes_files(sdk: openai.OpenAI, tmp_path: Path) -> None:
    path = tmp_path / "on disk.jsonl"
    path.write_bytes(LINES)

    by_path = sdk.files.create(file=path, purpose="batch")
    by_bytes = sdk.files.create(file=LINES, purpose="batch")
    by_stream = sdk.files.create(
        file=("named.jsonl", io.BytesIO(LINES)),
        purpose="batch",
        expires_after={"anchor": "created_at", "seconds": 3600},
    )

    assert [file.filename for file in (by_path, by_stream)] == ["on disk.jsonl", "named.jsonl"]
    assert {file.bytes for file in (by_path, by_bytes, by_stream)} == {len(LINES)}
    assert by_stream.expires_at == by_stream.created_at + 3600
    assert sdk.files.retrieve(by_path.id) == by_path
    assert sdk.files.wait_for_processing(by_path.id).status == "processed"
    assert sdk.files.content(by_bytes.id).read() == LINES
    with sdk.files.with_streaming_response.content(by_bytes.id) as answer:
        assert list(answer.iter_lines()) == LINES.decode().splitlines()
    listed = [file.id for file in sdk.files.list(limit=2, purpose="batch")]
    assert listed[:3] == [by_stream.id, by_bytes.id, by_path.id]
    assert [file.id for file in sdk.files.list(limit=1, order="asc")] == listed[::-1]
    assert sdk.files.delete(by_path.id).deleted
    with pytest.raises(openai.NotFoundError) as missing:
        sdk.files.content(by_path.id)
    assert missing.value.code == "file_not_found"
    with pytest.raises(openai.BadRequestError) as refused:
        sdk.files.create(file=LINES, purpose="fine-tune")
    assert (refused.value.code, refused.value.param) == ("invalid_value", "purpose")


def test_the_stock_sdk_uploads_in_parts(sdk: openai.OpenAI, tmp_path: Path) -> None:
    content = b"".join(b'{"n":%d}\n' % n for n in range(1000))
    path = tmp_path / "long.jsonl"
    path.write_bytes(content)

    upload = sdk.uploads.upload_file_chunked(
        file=path,
        mime_type="application/jsonl",
        purpose="batch",
        part_size=4000,
        md5=hashlib.md5(content).hexdigest(),
    )

    assert (upload.status, upload.bytes) == ("completed", len(content))
    assert upload.file is not None
    assert sdk.files.content(upload.file.id).read() == content
    assert next(iter(sdk.files.list())).id == upload.file.id
    with pytest.raises(openai.BadRequestError, match="MD5"):
        sdk.uploads.upload_file_chunked(
            file=content,
            filename="a",
            bytes=len(content),
            mime_type="application/jsonl",
            purpose="batch",
            md5="0" * 32,
        )


def test_an_upload_that_is_over_is_not_tried_again(sdk: openai.OpenAI) -> None:
    upload = sdk.uploads.create(bytes=3, filename="a", mime_type="text/plain", purpose="batch")
    part = sdk.uploads.parts.create(upload.id, data=b"abc")
    assert sdk.uploads.cancel(upload.id).status == "cancelled"

    with pytest.raises(openai.ConflictError) as refused:
        sdk.uploads.complete(upload.id, part_ids=[part.id])

    assert refused.value.code == "upload_not_pending"
    assert refused.value.response.request.headers["x-stainless-retry-count"] == "0"


def test_a_file_above_the_limit_is_refused_while_it_is_sent(
    sdk: openai.OpenAI, files_settings: Settings
) -> None:
    before = blobs(files_settings)
    for num_bytes in (MAX_FILE_BYTES + 1, MAX_FILE_BYTES + 2**20):
        with pytest.raises(openai.APIStatusError) as refused:
            sdk.files.create(file=b"x" * num_bytes, purpose="batch")
        assert refused.value.status_code == 413
        assert refused.value.code == "request_too_large"
    assert blobs(files_settings) == before


@pytest.mark.parametrize("length", [len(FORM + END) + 1, len(FORM + END) + 10**6])
@pytest.mark.parametrize("end", [END, b""])
def test_a_body_that_is_shorter_than_announced_is_refused(
    served: Served, files_settings: Settings, length: int, end: bytes
) -> None:
    before = blobs(files_settings)

    answer = post(served, FORM + end, head=f"Content-Length: {length}")

    assert answer.split()[1] == "400"
    assert '"incomplete_body"' in answer
    assert blobs(files_settings) == before


def test_a_chunked_form_is_taken_if_it_is_whole(served: Served, files_settings: Settings) -> None:
    before = blobs(files_settings)
    pieces = [chunk(FORM[:100]), chunk(FORM[100:]), chunk(END), b"0\r\n\r\n"]

    whole = post(served, *pieces, head="Transfer-Encoding: chunked")

    assert whole.split()[1] == "200"
    assert [blob.read_bytes() for blob in blobs(files_settings) - before] == [LINES]


@pytest.mark.parametrize(
    "pieces",
    [
        [chunk(FORM), b"0\r\n\r\n"],
        [chunk(FORM)],
        [chunk(FORM)[:-20]],
        [chunk(FORM + END)],
        [b"zz\r\nabc\r\n0\r\n\r\n"],
    ],
    ids=[
        "no last boundary",
        "no last chunk",
        "half a chunk",
        "no last chunk but the last boundary",
        "no length of a chunk",
    ],
)
def test_a_chunked_form_that_is_cut_short_leaves_no_blob(
    served: Served, files_settings: Settings, pieces: list[bytes]
) -> None:
    before = blobs(files_settings)

    answer = post(served, *pieces, head="Transfer-Encoding: chunked")

    assert answer.split()[1] == "400"
    assert blobs(files_settings) == before


def peak_bytes(process: psutil.Process) -> int:
    """The most memory that a process ever held."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))
