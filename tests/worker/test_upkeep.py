from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from models.errors import QueueUnavailable
from models.fleet import Fleet, WorkerCard
from models.signals import Signal, Signals
from models.tables.job import Lane
from models.tables.worker import Worker
from tests.models.pipeline import MODEL
from tests.models.pipeline import Pipeline as Backlog
from tests.services.redis_server import ValkeyServer
from tests.worker.listening import listening
from tests.worker.waiting import eventually
from worker.upkeep import Upkeep


@pytest.fixture
def make_upkeep(backlog: Backlog, redis_url: str) -> Iterator[Callable[[float], Upkeep]]:
    """Makes the upkeep of a worker, given the length of a lease in seconds."""
    signals = Signals(redis_url, "test")
    yield lambda lease_seconds: Upkeep(
        database=backlog.database,
        consumer=backlog.consumer("w1"),
        dispatcher=backlog.dispatcher(),
        signals=signals,
        lease_seconds=lease_seconds,
    )
    signals.close()


@pytest.fixture
def upkeep(make_upkeep: Callable[[float], Upkeep]) -> Upkeep:
    return make_upkeep(0.2)


@contextmanager
def running(upkeep: Upkeep) -> Iterator[None]:
    stopping = threading.Event()
    thread = threading.Thread(target=upkeep.run, args=[stopping])
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(60)
        assert not thread.is_alive()


def test_waiting_jobs_are_published(backlog: Backlog, upkeep: Upkeep) -> None:
    backlog.accept(3)

    with running(upkeep):
        eventually(lambda: backlog.queue.depth(MODEL, Lane.STANDARD) == 3)

    assert backlog.delivered() == [job.id for job in backlog.jobs()]


def test_entries_of_a_consumer_that_died_before_its_claim_are_published_anew(
    backlog: Backlog, upkeep: Upkeep
) -> None:
    job_id = backlog.accept(depth=10)
    (dead,) = backlog.consumer("dead").read({Lane.STANDARD: 1})

    with running(upkeep):
        delivered: list[str] = []

        def look() -> bool:
            delivered.extend(backlog.delivered())
            return bool(delivered)

        eventually(look)

    assert delivered == [job_id]
    assert dead.ticket.job_id == job_id
    job = backlog.job(job_id)
    assert (job.status, job.attempt) == ("queued", 0)


def test_what_a_consumer_that_is_gone_has_read_is_published_anew_whatever_the_clock_of_redis_says(
    backlog: Backlog, make_upkeep: Callable[[float], Upkeep]
) -> None:
    job_id = backlog.accept(depth=10)
    assert backlog.consumer("dead").read({Lane.STANDARD: 1})

    # Nothing is ever idle for so long, as after a clock that was set back.
    with running(make_upkeep(3600)):
        reader = backlog.consumer("w2")
        found: list[str] = []

        def look() -> bool:
            found.extend(entry.ticket.job_id for entry in reader.read({Lane.STANDARD: 10}))
            return bool(found)

        eventually(look)

    assert found == [job_id]
    assert backlog.queue.depth(MODEL, Lane.STANDARD) == 1


def test_entries_that_somebody_keeps_alive_stay(
    backlog: Backlog, make_upkeep: Callable[[float], Upkeep]
) -> None:
    # Longer than two threads and a server keep each other waiting.
    upkeep = make_upkeep(2.0)
    job_id = backlog.accept(depth=10)
    alive = backlog.consumer("alive")
    Fleet(backlog.database).join(WorkerCard("alive", "host", 1, MODEL, 64, "cpu", "0"))
    entries = alive.read({Lane.STANDARD: 1})
    beats: list[str] = []
    done = threading.Event()

    def beat() -> None:
        while not done.wait(0.03):
            beats.extend(alive.renew(entries))

    beater = threading.Thread(target=beat)
    beater.start()
    looked = threading.Event()
    upkeep.also(3.3, lambda: looked.set() if beats else None)
    with running(upkeep):
        assert looked.wait(60)
    done.set()
    beater.join()

    assert alive.renew(entries) == {entries[0].entry_id}
    assert backlog.job(job_id).dispatched_at is not None


def test_jobs_that_their_worker_lost_sight_of_are_rescued_and_published(
    backlog: Backlog, upkeep: Upkeep
) -> None:
    job_id = backlog.accept()
    Fleet(backlog.database).join(WorkerCard("w1", "host", 1, MODEL, 64, "cpu", "0"))
    # Alive, however long this test takes.
    later = backlog.time(seconds_from_now=500)
    with backlog.database.transaction() as session:
        session.get_one(Worker, "w1").heartbeat_at = later
    backlog.claim(lease_seconds=-1)

    with running(upkeep):
        eventually(lambda: backlog.queue.depth(MODEL, Lane.STANDARD) == 1)

    assert backlog.delivered() == [job_id]
    job = backlog.job(job_id)
    assert (job.status, job.attempt, job.owner) == ("queued", 1, None)


def test_jobs_of_a_worker_that_crashed_become_suspects_and_their_pollers_are_told(
    backlog: Backlog, upkeep: Upkeep, valkey_server: ValkeyServer
) -> None:
    told: list[str] = []
    backlog.accept(4)
    backlog.claim(lease_seconds=-1, worker_id="dead")

    with listening(valkey_server, Signal.DONE, told.extend), running(upkeep):
        eventually(lambda: len(told) == 4)

    assert {(job.status, job.isolation) for job in backlog.jobs()} == {("queued", 2)}


def test_overdue_jobs_expire_and_their_pollers_are_told(
    backlog: Backlog, upkeep: Upkeep, valkey_server: ValkeyServer
) -> None:
    job_id = backlog.accept(deadline_at=backlog.time() - timedelta(seconds=1))
    told = threading.Event()

    def hear(job_ids: Sequence[str]) -> None:
        if job_id in job_ids:
            told.set()

    with listening(valkey_server, Signal.DONE, hear), running(upkeep):
        assert told.wait(60)

    assert backlog.job(job_id).status == "expired"


def test_an_entry_that_redis_has_lost_is_published_anew(backlog: Backlog, upkeep: Upkeep) -> None:
    backlog.dispatcher().dispatch()
    job_id = backlog.accept()
    backlog.change(job_id, dispatched_at=backlog.time(seconds_from_now=-60))

    with running(upkeep):
        eventually(lambda: backlog.queue.depth(MODEL, Lane.STANDARD) == 1)

    assert backlog.delivered() == [job_id]


def test_a_chore_that_cannot_be_done_does_not_hinder_the_others(backlog: Backlog, upkeep: Upkeep) -> None:
    tries = threading.Semaphore(0)

    def fail() -> None:
        tries.release()
        raise QueueUnavailable

    upkeep.also(0.01, fail)
    backlog.accept()

    with running(upkeep):
        assert all(tries.acquire(timeout=60) for _ in range(3))
        eventually(lambda: backlog.queue.depth(MODEL, Lane.STANDARD) == 1)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors that nobody foresaw cost no pause."""
    monkeypatch.setattr("worker.tolerance._FIRST_PAUSE_SECONDS", 0)


@pytest.mark.usefixtures("impatient")
def test_a_defect_in_a_chore_is_endured_for_a_while_and_not_hidden(upkeep: Upkeep) -> None:
    tries: list[None] = []

    def fail() -> None:
        tries.append(None)
        raise ZeroDivisionError

    upkeep.also(0.01, fail)

    with capture_logs() as logs, pytest.raises(ZeroDivisionError):
        upkeep.run(threading.Event())

    assert len(tries) == 6
    assert [line["event"] for line in logs].count("chore_failed") == 6


@pytest.mark.usefixtures("impatient")
def test_a_chore_that_is_done_at_last_has_its_patience_back(upkeep: Upkeep) -> None:
    tries = threading.Semaphore(0)
    num_tries = 0

    def fail_but_every_third_time() -> None:
        nonlocal num_tries
        num_tries += 1
        tries.release()
        if num_tries % 3:
            raise ZeroDivisionError

    upkeep.also(0.01, fail_but_every_third_time)

    with capture_logs(), running(upkeep):
        assert all(tries.acquire(timeout=60) for _ in range(12))


def test_a_callers_own_chore_is_done_every_so_often(upkeep: Upkeep) -> None:
    done = threading.Semaphore(0)
    count: Callable[[], object] = done.release
    upkeep.also(0.01, count)

    with running(upkeep):
        assert all(done.acquire(timeout=60) for _ in range(3))
