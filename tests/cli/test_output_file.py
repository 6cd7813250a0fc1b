from __future__ import annotations

import gzip
import io
import sys
from pathlib import Path

import pytest

from cli.output_file import OutputFile
from models.errors import StartupError


def test_it_is_there_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("old")

    with OutputFile(str(path), flag="-o").open() as file:
        file.write(b"new")
        before = path.read_text()

    assert (before, path.read_text()) == ("old", "new")
    assert list(tmp_path.iterdir()) == [path]


def test_what_fails_half_way_leaves_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("old")

    def fail_half_way() -> None:
        with OutputFile(str(path), flag="-o").open() as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_half_way()

    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_by_its_name_it_is_compressed_always_to_the_same_bytes(tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.jsonl.gz" for name in "ab"]

    for path in paths:
        with OutputFile(str(path), flag="-o").open() as file:
            file.write(b"one\n")
            file.write(b"two\n")

    assert gzip.decompress(paths[0].read_bytes()) == b"one\ntwo\n"
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "out.jsonl").symlink_to(tmp_path / "far" / "real.jsonl")

    with OutputFile(str(tmp_path / "out.jsonl"), flag="-o").open() as file:
        file.write(b"new")

    assert (tmp_path / "out.jsonl").is_symlink()
    assert (tmp_path / "far" / "real.jsonl").read_text() == "new"


def test_a_dash_is_stdout(monkeypatch: pytest.MonkeyPatch) -> None:
    stdout = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr(sys, "stdout", stdout)
    output = OutputFile("-", flag="-o")

    output.check(overwrite=False)
    with output.open() as file:
        file.write(b"\xff\n")

    assert output.is_stdout
    assert stdout.buffer.getvalue() == b"\xff\n"


def test_where_it_cannot_be_is_said_with_its_flag(tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").touch()

    def refusal(name: Path | str) -> str:
        with pytest.raises(StartupError) as refused:
            OutputFile(str(name), flag="--errors").check(overwrite=False)
        return refused.value.message

    assert refusal("") == "the output has no name; give a file with --errors"
    assert refusal(tmp_path) == f"{tmp_path} is a folder; give a file with --errors"
    assert refusal("/dev/null") == "/dev/null is no ordinary file; give a file with --errors"
    assert refusal(tmp_path / "no" / "out") == (
        f"there is no folder {tmp_path / 'no'}; make it, or give another --errors"
    )
    assert refusal(tmp_path / "out.jsonl") == (
        f"{tmp_path / 'out.jsonl'} exists; pass --overwrite, or give another --errors"
    )
