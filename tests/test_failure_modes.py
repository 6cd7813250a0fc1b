"""The list of failure modes is whole, and names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.named_tests import missing_tests

_ROOT = Path(__file__).parent.parent
_NUM_MODES = 42
_ROW = re.compile(r"^\| (\d+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
_TEST = re.compile(r"`(tests/[\w/]+\.py::\w+)`")


@pytest.fixture(scope="module")
def modes() -> list[tuple[int, str]]:
    """The numbers of the page, and what is said to find each."""
    text = (_ROOT / "docs" / "failure-modes.md").read_text(encoding="utf-8")
    return [(int(number), found_by) for number, _, found_by in _ROW.findall(text)]


def test_every_mode_stands_there_once(modes: list[tuple[int, str]]) -> None:
    assert sorted(number for number, _ in modes) == list(range(1, _NUM_MODES + 1))


def test_every_mode_names_a_test_or_cannot_occur(modes: list[tuple[int, str]]) -> None:
    unfounded = [number for number, found_by in modes if not re.search(r"::|[Cc]annot occur", found_by)]

    assert not unfounded


def test_every_test_that_is_named_exists(modes: list[tuple[int, str]]) -> None:
    named = [_TEST.findall(found_by) for _, found_by in modes]

    # Whatever looks like a test is read as one.
    assert [len(names) for names in named] == [found_by.count("::") for _, found_by in modes]
    assert missing_tests(name for names in named for name in names) == []
