from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from models.chore_lease import ChoreLeases, has_taken_a_chore
from models.database import Database


@pytest.fixture
def database_url(any_database_url: str) -> str:
    return any_database_url


@pytest.fixture
def process(database: Database) -> Callable[[str], ChoreLeases]:
    """Makes the leases of a process by its name."""
    return lambda name: ChoreLeases(database, name)


def test_of_two_processes_one_takes_a_chore(process: Callable[[str], ChoreLeases]) -> None:
    first = process("a").take("sweep", pause_seconds=0, lease_seconds=60)
    second = process("b").take("sweep", pause_seconds=0, lease_seconds=60)
    other = process("b").take("sort", pause_seconds=0, lease_seconds=60)

    assert (first, second, other) == (1, None, 1)


def test_a_chore_that_is_done_is_free_again(process: Callable[[str], ChoreLeases]) -> None:
    leases = process("a")
    token = leases.take("sweep", pause_seconds=0, lease_seconds=60)
    assert token is not None

    leases.release("sweep", token)

    assert process("b").take("sweep", pause_seconds=0, lease_seconds=60) == 2


def test_a_chore_that_is_done_is_not_due_before_its_pause_is_over(
    process: Callable[[str], ChoreLeases],
) -> None:
    leases = process("a")
    token = leases.take("sweep", pause_seconds=60, lease_seconds=60)
    assert token is not None
    leases.release("sweep", token)

    assert leases.take("sweep", pause_seconds=60, lease_seconds=60) is None
    assert process("b").take("sweep", pause_seconds=0, lease_seconds=60) is None


def test_the_lease_of_a_process_that_died_runs_out(process: Callable[[str], ChoreLeases]) -> None:
    assert process("dead").take("sweep", pause_seconds=0, lease_seconds=0) == 1

    assert process("b").take("sweep", pause_seconds=0, lease_seconds=60) == 2


def test_who_comes_back_late_does_not_release_the_lease_of_another(
    process: Callable[[str], ChoreLeases],
) -> None:
    slow = process("slow")
    old = slow.take("sweep", pause_seconds=0, lease_seconds=0)
    assert old == 1
    assert process("b").take("sweep", pause_seconds=0, lease_seconds=60) == 2

    slow.release("sweep", old)

    assert process("c").take("sweep", pause_seconds=0, lease_seconds=60) is None


@pytest.mark.parametrize("known", [False, True])
def test_of_many_at_the_same_moment_one_takes_it(process: Callable[[str], ChoreLeases], known: bool) -> None:
    if known:
        process("before").take("sweep", pause_seconds=0, lease_seconds=0)
    barrier = Barrier(8)

    def take(number: int) -> int | None:
        leases = process(f"{number}")
        barrier.wait(60)
        return leases.take("sweep", pause_seconds=60, lease_seconds=60)

    with ThreadPoolExecutor(8) as pool:
        tokens = list(pool.map(take, range(8)))

    assert sorted(token for token in tokens if token is not None) == [2 if known else 1]


def test_a_process_is_known_by_the_chores_it_took_lately(
    database: Database, process: Callable[[str], ChoreLeases]
) -> None:
    process("mill:12:x").take("sweep", pause_seconds=60, lease_seconds=0)
    process("mill:7:y").take("sort", pause_seconds=0, lease_seconds=60)

    assert has_taken_a_chore(database, "mill", 12)
    assert not has_taken_a_chore(database, "mill", 1)
    assert not has_taken_a_chore(database, "mil", 12)
    assert not has_taken_a_chore(database, "mill", 7)
    assert has_taken_a_chore(database, "mill")
    assert not has_taken_a_chore(database, "mil")
