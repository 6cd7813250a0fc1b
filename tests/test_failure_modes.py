"""The list of failure modes is whole, and names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

_ROOT = Path(__file__).parent.parent
_NUM_MODES = 42
_ROW = re.compile(r"^\| (\d+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@pytest.fixture(scope="module")
def modes() -> list[tuple[int, str]]:
    """The numbers of the page, and what is said to find each."""
    text = (_ROOT / "docs" / "failure-modes.md").read_text(encoding="utf-8")
    return [(int(number), found_by) for number, _, found_by in _ROW.findall(text)]


def collected_from(path: Path) -> set[str]:
    """What pytest collects from a file: functions, and classes by their name or by assignment."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]):
                names.add(name)
    return {name for name in names if name.startswith(("test_", "Test"))}


def test_every_mode_stands_there_once(modes: list[tuple[int, str]]) -> None:
    assert sorted(number for number, _ in modes) == list(range(1, _NUM_MODES + 1))


def test_every_mode_names_a_test_or_cannot_occur(modes: list[tuple[int, str]]) -> None:
    unfounded = [number for number, found_by in modes if not re.search(r"::|[Cc]annot occur", found_by)]

    assert not unfounded


def test_every_test_that_is_named_exists(modes: list[tuple[int, str]]) -> None:
    missing = []
    for number, found_by in modes:
        named = _TEST.findall(found_by)
        # Whatever looks like a test is read as one.
        assert len(named) == found_by.count("::")
        for path, name in named:
            if not (_ROOT / path).is_file() or name not in collected_from(_ROOT / path):
                missing.append(f"{number}: {path}::{name}")

    assert not missing
