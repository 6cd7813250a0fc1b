"""Failpoints at the start of every role: nothing serves that was armed by mistake."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import api.__main__
import worker.__main__
import worker.background.__main__
from cli.main import run_command

_STARTS: dict[str, Callable[[Path], int]] = {
    "api": lambda _: api.__main__.main(),
    "worker": lambda _: worker.__main__.main(),
    "background": lambda _: worker.background.__main__.main(),
    "up": lambda folder: run_command(["up", "--data-dir", str(folder)]),
    "run": lambda folder: run_command(["run", str(folder / "in"), "-o", str(folder / "out")]),
}


@pytest.mark.parametrize("role", _STARTS)
@pytest.mark.parametrize(
    ("fail", "allowed", "said"),
    [
        ("read_after:raise", "", "HEADRACE_ALLOW_FAILPOINTS=1"),
        ("read_after:explode", "1", "asks for 'explode' at read_after"),
        ("reading:raise", "1", "names no failpoint 'reading'"),
    ],
)
def test_no_role_starts_with_a_failpoint_that_is_wrong_or_not_allowed(
    role: str,
    fail: str,
    allowed: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_FAIL", fail)
    monkeypatch.setenv("HEADRACE_ALLOW_FAILPOINTS", allowed)

    code = _STARTS[role](tmp_path)

    (line,) = capsys.readouterr().err.splitlines()
    assert code == 2
    assert line.startswith("headrace")
    assert said in line
    assert not list(tmp_path.iterdir())
