from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from models.job_store import JobStore
from models.lease import Held
from models.settings import Settings
from tests.models.pipeline import MODEL
from tests.models.pipeline import Pipeline as Backlog
from tests.worker.waiting import eventually
from worker.leases import MAX_RESTARTS, Leases
from worker.progress import Progress


@pytest.fixture
def leases(backlog: Backlog, redis_url: str, settings: Callable[..., Settings]) -> Iterator[Leases]:
    found = Leases(
        settings(
            database_url=f"{backlog.database.engine.url}",
            redis_url=redis_url,
            redis_namespace="test",
            model=MODEL,
            lease_seconds=0.4,
            log_level="error",
        ),
        "w1",
        Progress(),
    )
    yield found
    found.stop()


def claim(backlog: Backlog, count: int) -> list[Held]:
    backlog.accept(count)
    return [job.held for job in backlog.claim()]


def listen(leases: Leases) -> tuple[queue.SimpleQueue[Held], threading.Event]:
    lost: queue.SimpleQueue[Held] = queue.SimpleQueue()
    died = threading.Event()

    def on_lost(leases: Sequence[Held]) -> None:
        for held in leases:
            lost.put(held)

    leases.listen(on_lost, died.set)
    return lost, died


def _lease_is_short(backlog: Backlog, held: Held) -> bool:
    until = backlog.job(held.job_id).lease_until
    return until is not None and backlog.time() < until < backlog.time(seconds_from_now=5)


def test_tells_which_leases_are_lost_and_keeps_the_others(backlog: Backlog, leases: Leases) -> None:
    first, second, third = claim(backlog, 3)
    lost, died = listen(leases)
    leases.hold([first, second, third])
    JobStore(backlog.database).cancel(backlog.project_id, second.job_id)

    assert lost.get(timeout=60) == second

    # Claimed for 30 seconds, renewed for less than one: the renewal shows.
    eventually(lambda: all(_lease_is_short(backlog, held) for held in (first, third)))
    assert lost.empty()
    assert not died.is_set()


def test_a_released_lease_is_not_missed(backlog: Backlog, leases: Leases) -> None:
    first, second = claim(backlog, 2)
    lost, _ = listen(leases)
    leases.hold([first, second])

    leases.release([first])
    for held in (first, second):
        JobStore(backlog.database).cancel(backlog.project_id, held.job_id)

    assert lost.get(timeout=60) == second
    assert lost.empty()
    assert leases.all() == [second]


def test_the_loss_of_an_older_lease_does_not_touch_the_newer_one(backlog: Backlog, leases: Leases) -> None:
    backlog.accept()
    (old,) = backlog.claim(lease_seconds=-1)
    leases.hold([old.held])
    backlog.rescue()
    (new,) = backlog.claim_suspects()
    leases.hold([new.held])
    lost, _ = listen(leases)

    leases.release([old.held])

    assert leases.all() == [new.held]
    backlog.change(new.id, lease_until=backlog.time(seconds_from_now=-5))
    eventually(lambda: (backlog.job(new.id).lease_until or backlog.time()) > backlog.time())
    assert lost.empty()


def test_figures_are_stored_with_the_heartbeat(backlog: Backlog, leases: Leases) -> None:
    from models.fleet import Fleet, WorkerCard

    fleet = Fleet(backlog.database)
    fleet.join(WorkerCard("w1", "host", os.getpid(), MODEL, 100, "cpu", "1"))

    leases.report({"tokens_per_second": 12.5})

    eventually(lambda: fleet.alive()[0].stats == '{"tokens_per_second":12.5}')


def heartbeat_pid(*, other_than: int | None = None) -> int:
    """The heartbeat process, as soon as there is one that is not `other_than`."""
    found: list[int] = []

    def look() -> bool:
        found[:] = [
            child.pid
            for child in multiprocessing.active_children()
            if child.name == "heartbeat" and child.pid not in {None, other_than}
        ]
        return bool(found)

    eventually(look)
    return found[0]


def test_a_heartbeat_that_dies_is_replaced_and_goes_on_with_all_that_is_held(
    backlog: Backlog, leases: Leases
) -> None:
    (held,) = claim(backlog, 1)
    lost, died = listen(leases)
    leases.hold([held])
    pid = heartbeat_pid()

    os.kill(pid, signal.SIGKILL)

    assert heartbeat_pid(other_than=pid) != pid
    backlog.change(held.job_id, lease_until=backlog.time(seconds_from_now=-5))
    eventually(lambda: _lease_is_short(backlog, held))
    assert lost.empty()
    assert not died.is_set()


def test_the_death_of_one_heartbeat_after_another_is_told(backlog: Backlog, leases: Leases) -> None:
    (held,) = claim(backlog, 1)
    _, died = listen(leases)

    pid = None
    for _ in range(MAX_RESTARTS + 1):
        assert not died.is_set()
        pid = heartbeat_pid(other_than=pid)
        os.kill(pid, signal.SIGKILL)

    assert died.wait(60)
    leases.hold([held])
    assert leases.all() == [held]
