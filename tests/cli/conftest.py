"""What tests of the `batch` commands share: a double of the API, and the command in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli.main import run_command
from tests.cli.batch_files import request, write_lines
from tests.cli.fake_api import ANSWERS, ERRORS, FakeApi, fake_api

#: Runs a command to its end: exit code, stdout, stderr.
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    monkeypatch.setattr("cli.download.PAUSE_SECONDS", 0.001)
    monkeypatch.setattr("cli.upload.PAUSE_SECONDS", 0.001)
    with fake_api() as api:
        api.files = {"file-output": ANSWERS, "file-errors": ERRORS}
        yield api


@pytest.fixture
def run_batch(
    api: FakeApi, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_API_URL", api.url)
    monkeypatch.setenv("HEADRACE_API_KEY", "key")
    monkeypatch.setattr("cli.batch_wait._MIN_LOOK_SECONDS", 0.001)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = run_command(["batch", *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file of three requests."""
    return write_lines(tmp_path / "in.jsonl", [request(name) for name in "abc"])
