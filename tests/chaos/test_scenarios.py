"""The lists of scenarios and reports are whole, and name tests that exist."""

from __future__ import annotations

import pytest

from tests.chaos.reports import REPORTS
from tests.chaos.scenarios import SCENARIOS, Promise
from tests.named_tests import missing_tests

_LISTS = pytest.mark.parametrize(
    ("promises", "count"), [(SCENARIOS, 40), (REPORTS, 34)], ids=["scenarios", "reports"]
)


@_LISTS
def test_each_stands_there_once(promises: tuple[Promise, ...], count: int) -> None:
    assert [promise.number for promise in promises] == list(range(1, count + 1))


@_LISTS
def test_each_is_tested_or_said_to_come_later(promises: tuple[Promise, ...], count: int) -> None:
    assert [promise.number for promise in promises if not promise.tests and promise.later is None] == []


@_LISTS
def test_every_test_that_is_named_exists(promises: tuple[Promise, ...], count: int) -> None:
    assert missing_tests(name for promise in promises for name in promise.tests) == []
