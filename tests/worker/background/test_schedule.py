from __future__ import annotations

from collections.abc import Callable

import pytest

from models.chore_lease import ChoreLeases
from models.database import Database
from models.errors import QueueUnavailable
from worker.background.schedule import Chore, Schedule


@pytest.fixture
def runs() -> list[str]:
    """What was done, in order."""
    return []


@pytest.fixture
def schedule_of(database: Database, runs: list[str]) -> Callable[..., Schedule]:
    """Makes the schedule of a process with one chore, `sweep`."""

    def make(owner: str = "a", *, every_seconds: float = 60.0, then: Callable[[], object] = str) -> Schedule:
        def sweep() -> None:
            runs.append(owner)
            then()

        return Schedule([Chore("sweep", every_seconds, sweep)], ChoreLeases(database, owner))

    return make


def test_a_doubled_message_is_harmless(schedule_of: Callable[..., Schedule], runs: list[str]) -> None:
    first, second = schedule_of("a"), schedule_of("b")

    for schedule in (first, first, second, second):
        schedule.run("sweep")

    assert runs == ["a"]


def test_a_message_that_comes_while_the_chore_is_done_is_harmless(
    schedule_of: Callable[..., Schedule], runs: list[str]
) -> None:
    other = schedule_of("b", every_seconds=0)

    schedule_of("a", every_seconds=0, then=lambda: other.run("sweep")).run("sweep")
    during = list(runs)
    other.run("sweep")

    assert during == ["a"]
    assert runs == ["a", "b"]


def test_an_unknown_name_does_nothing(schedule_of: Callable[..., Schedule], runs: list[str]) -> None:
    schedule_of().run("dispatch:of-another-model")

    assert runs == []


def test_a_chore_that_cannot_be_done_is_left_for_the_next_period(
    schedule_of: Callable[..., Schedule], runs: list[str]
) -> None:
    def fail() -> None:
        raise QueueUnavailable

    failing = schedule_of("a", every_seconds=0, then=fail)

    failing.run("sweep")
    failing.run("sweep")

    assert runs == ["a", "a"]


def test_a_defect_is_not_hidden_and_frees_the_chore(
    schedule_of: Callable[..., Schedule], runs: list[str]
) -> None:
    failing = schedule_of("a", every_seconds=0, then=lambda: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        failing.run("sweep")
    schedule_of("b", every_seconds=0).run("sweep")

    assert runs == ["a", "b"]
