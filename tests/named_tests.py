"""Tests that a list names, as `tests/x/test_y.py::test_z` or `::TestZ`, and whether they are there."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

_ROOT = Path(__file__).parent.parent


def missing_tests(names: Iterable[str]) -> list[str]:
    """Return those of these names under which pytest would collect nothing."""
    return [name for name in names if not _exists(*name.split("::"))]


def _exists(file: str, name: str) -> bool:
    path = _ROOT / file
    return path.is_file() and name in _collected_from(path)


def _collected_from(path: Path) -> set[str]:
    """What pytest collects from a file: functions, and classes by their name or by assignment."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]):
                names.add(name)
    return {name for name in names if name.startswith(("test_", "Test"))}
