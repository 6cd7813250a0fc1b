from __future__ import annotations

import gzip
import io
import os
import sys
import threading
from pathlib import Path

import pytest

from cli.request_file import request_file
from models.errors import StartupError

LINES = b'{"custom_id": "a"}\n{"custom_id": "b"}\n'


def given_on_stdin(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_a_plain_file_is_opened_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(LINES)

    with request_file(path) as file:
        assert (file.name, file.read()) == (str(path), LINES)


@pytest.mark.parametrize("name", ["in.jsonl.gz", "in.jsonl"])
def test_a_compressed_file_is_told_by_its_first_bytes_whatever_its_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(LINES[:20]) + gzip.compress(LINES[20:]))

    with request_file(path) as file:
        copy = Path(file.name)
        assert copy.read_bytes() == file.read() == LINES

    assert not copy.exists()
    assert path.exists()


@pytest.mark.parametrize("content", [LINES, gzip.compress(LINES)], ids=["plain", "packed"])
def test_stdin_is_a_file_that_can_be_read_twice(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    given_on_stdin(monkeypatch, content)

    with request_file("-") as file:
        copy = Path(file.name)
        assert file.read() == LINES
        assert file.seek(0) == 0
        assert file.read() == copy.read_bytes() == LINES

    assert not copy.exists()


def test_a_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(LINES,))
    writer.start()

    with request_file(path) as file:
        assert file.read() == LINES

    writer.join()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (gzip.compress(LINES)[:-9], "it ends too early"),
        (gzip.compress(LINES)[:-6] + b"nosums", "CRC check failed"),
        (LINES, "Not a gzipped file"),
    ],
    ids=["cut", "changed", "plain"],
)
def test_a_damaged_archive_is_refused_before_anything_is_done(
    tmp_path: Path, content: bytes, told: str
) -> None:
    path = tmp_path / "in.jsonl.gz"
    path.write_bytes(content)

    with (
        pytest.raises(StartupError, match=f"in.jsonl.gz is not a whole gzip file: {told}"),
        request_file(path),
    ):
        pass


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="is a folder; give a file of requests"), request_file(tmp_path):
        pass
    with (
        pytest.raises(StartupError, match="absent cannot be read: No such file"),
        request_file(tmp_path / "absent"),
    ):
        pass
