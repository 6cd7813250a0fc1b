"""What docs/reliability.md tells a person at night is so: events, commands and settings by their names."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from cli.main import run_command
from models.settings import PREFIX, Settings

_ROOT = Path(__file__).parent.parent
_PAGE = (_ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
_PACKAGES = ("api", "cli", "engine", "models", "worker")
_LOGGED = re.compile(r"_log\.(debug|info|warning|error|exception)\(\s*\"(\w+)\"")
#: A row of the table of events: their names, their level, whose they are.
_ROW = re.compile(r"^\| (`\w+`(?:, `\w+`)*) \| (info|warning|error) \| ([\w, ]+) \|", re.MULTILINE)
#: Where each role's events may come from.
_PLACES = {
    "api": ("api", "models"),
    "worker": ("worker", "models"),
    "background": ("worker", "models"),
    "up": ("cli",),
}


def logged_events() -> set[tuple[str, str, str]]:
    """What the packages log: package, level, event."""
    return {
        (package, "error" if level == "exception" else level, event)
        for package in _PACKAGES
        for file in (_ROOT / package).rglob("*.py")
        for level, event in _LOGGED.findall(file.read_text(encoding="utf-8"))
    }


def commands() -> list[list[str]]:
    """The words of every `headrace` command of the page."""
    lines = re.findall(r"^(headrace [^#\n]+)", _PAGE, re.MULTILINE)
    spans = re.findall(r"`(headrace [^`]+)`", _PAGE)
    return [shlex.split(command)[1:] for command in [*lines, *spans]]


def test_every_event_is_logged_so() -> None:
    logged = logged_events()
    rows = _ROW.findall(_PAGE)

    untrue = [
        f"{event} {level} {role}"
        for events, level, roles in rows
        for event in re.findall(r"\w+", events)
        for role in roles.split(", ")
        if not any((place, level, event) in logged for place in _PLACES[role])
    ]

    assert rows
    assert not untrue


def test_every_event_that_a_failure_is_told_by_is_logged() -> None:
    events = {event for _, _, event in logged_events()}
    failures = _PAGE.partition("## What breaks")[2].partition("## What you see")[0]

    rows = re.findall(r"\|([^|\n]*)\|$", failures, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([a-z]+_[a-z_]+)`", row)}

    assert named
    assert named <= events


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_is_one(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command([words[0], "--help"]) == 0

    told = capsys.readouterr().out
    assert all(word in told for word in words if word.startswith("--"))


def test_every_setting_is_one() -> None:
    known = {PREFIX + name.upper() for name in Settings.model_fields}

    named = set(re.findall(rf"{PREFIX}\w+", _PAGE))

    assert named
    assert named <= known
