from __future__ import annotations

import gzip
import io
import sys
from pathlib import Path

import pytest

from cli.run_input import read_input
from models.errors import StartupError
from tests.cli.batch_files import request, settings_in, write_lines


def test_the_same_lines_are_the_same_run_however_they_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = write_lines(tmp_path / "in.jsonl", [request("a"), "not json", request("b")])
    packed = tmp_path / "in.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(packed.read_bytes())))
    settings = settings_in(tmp_path)

    found = [read_input(source, settings) for source in (plain, packed, "-")]

    assert {input.identity(settings).digest for input in found} == {found[0].identity(settings).digest}
    assert [draft.custom_id for draft in found[2].drafts] == ["a", "b"]
    assert list(found[2].bad) == [1]


def test_other_lines_or_another_model_are_another_run(tmp_path: Path) -> None:
    first = read_input(write_lines(tmp_path / "1.jsonl", [request("a")]), settings_in(tmp_path))
    second = read_input(write_lines(tmp_path / "2.jsonl", [request("b")]), settings_in(tmp_path))
    settings = settings_in(tmp_path)
    longer = settings_in(tmp_path, default_max_tokens=7)

    digests = [first.identity(settings), second.identity(settings), first.identity(longer)]

    assert len({identity.digest for identity in digests}) == 3


def test_nothing_on_stdin_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))

    with pytest.raises(StartupError, match="stdin is empty; give one request a line"):
        read_input("-", settings_in(tmp_path))
