"""What `/v1/files/{id}/content` answers: whole, in ranges, or not at all."""

from __future__ import annotations

import pytest

from api.services import services
from tests.api.client import Client
from tests.api.file_sender import LINES, blobs, error_of, read, store


def test_content_comes_with_all_that_a_download_needs(client: Client) -> None:
    file = store(client, filename="a\u00fc%'x.jsonl")

    answer = read(client, file["id"])

    assert (answer.status_code, answer.data) == (200, LINES)
    assert answer.mimetype == "application/jsonl"
    assert answer.headers["Content-Length"] == str(len(LINES))
    assert answer.headers["ETag"] == f'"{file["id"]}"'
    assert answer.headers["Accept-Ranges"] == "bytes"
    disposition = answer.headers["Content-Disposition"]
    assert disposition == """attachment; filename="a__'x.jsonl"; filename*=UTF-8''a%C3%BC%25%27x.jsonl"""


def test_head_tells_the_length_and_reads_nothing(client: Client) -> None:
    file = store(client)
    for blob in blobs(client):
        blob.unlink()

    answer = read(client, file["id"], "HEAD")

    assert (answer.status_code, answer.data) == (200, b"")
    assert answer.headers["Content-Length"] == str(len(LINES))


def test_a_blob_that_cannot_be_read_is_told_before_the_head_is_sent(client: Client) -> None:
    file = store(client)
    for blob in blobs(client):
        blob.unlink()

    answer = read(client, file["id"])

    assert error_of(answer) == (503, "file_storage_unavailable", None)
    assert str(services(client.app).settings.data_dir) not in answer.text


@pytest.mark.parametrize(
    ("asked", "content_range", "content"),
    [
        ("bytes=0-3", "bytes 0-3/10", b"0123"),
        ("bytes=4-", "bytes 4-9/10", b"456789"),
        ("bytes=-3", "bytes 7-9/10", b"789"),
        ("bytes=-30", "bytes 0-9/10", b"0123456789"),
        ("bytes=8-100", "bytes 8-9/10", b"89"),
        ("bytes=9-9", "bytes 9-9/10", b"9"),
    ],
)
def test_a_range_is_read(client: Client, asked: str, content_range: str, content: bytes) -> None:
    file = store(client, b"0123456789")

    answer = read(client, file["id"], Range=asked)

    assert (answer.status_code, answer.data) == (206, content)
    assert answer.headers["Content-Range"] == content_range
    assert answer.headers["Content-Length"] == str(len(content))


@pytest.mark.parametrize("asked", ["bytes=10-", "bytes=10-12", "bytes=-0"])
def test_a_range_without_a_byte_is_refused(client: Client, asked: str) -> None:
    file = store(client, b"0123456789")

    answer = read(client, file["id"], Range=asked)

    assert error_of(answer) == (416, "range_not_satisfiable", None)
    assert answer.headers["Content-Range"] == "bytes */10"


@pytest.mark.parametrize("asked", ["bytes=0-1,4-5", "lines=0-1", "bytes=5-3", "nonsense"])
def test_other_ranges_are_ignored(client: Client, asked: str) -> None:
    file = store(client, b"0123456789")

    answer = read(client, file["id"], Range=asked)

    assert (answer.status_code, answer.data) == (200, b"0123456789")


def test_an_etag_saves_the_download_and_guards_a_range(client: Client) -> None:
    file = store(client, b"0123456789")
    etag = f'"{file["id"]}"'

    same = read(client, file["id"], If_None_Match=f'"x", {etag}')
    other = read(client, file["id"], If_None_Match='"x"')
    any_one = read(client, file["id"], If_None_Match="*")
    fresh = read(client, file["id"], Range="bytes=0-1", If_Range=etag)
    stale = read(client, file["id"], Range="bytes=0-1", If_Range='"x"')
    weak = read(client, file["id"], Range="bytes=0-1", If_Range=f"W/{etag}")
    dated = read(client, file["id"], Range="bytes=0-1", If_Range="Wed, 21 Oct 2015 07:28:00 GMT")

    assert (same.status_code, same.data, same.headers["ETag"]) == (304, b"", etag)
    assert (other.status_code, any_one.status_code) == (200, 304)
    assert (fresh.status_code, fresh.data) == (206, b"01")
    assert [answer.status_code for answer in (stale, weak, dated)] == [200, 200, 200]
