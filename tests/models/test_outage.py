from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import update

from models.backoff import Backoff
from models.database import Database, now
from models.errors import DatabaseUnavailable
from models.fleet import Fleet, WorkerCard
from models.keys import default_project
from models.outage import Outage
from models.queue import JobQueue
from models.rescue import bury, rescue
from models.tables.worker import Worker
from tests.models.pipeline import MODEL, Pipeline

_LEASE_SECONDS = 30.0


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0
        self.was_asked = threading.Event()

    def __call__(self) -> float:
        told = self.seconds
        self.was_asked.set()
        return told


def _live_through(outage: Outage, clock: Clock, seconds: float) -> None:
    """Ask every second."""
    outage.note_success()
    for _ in range(int(seconds)):
        outage.note_failure()
        clock.seconds += 1
    outage.note_success()


def _claim_and_fall_silent(pipeline: Pipeline) -> None:
    """A worker that lives and could not say so has a job."""
    card = WorkerCard("w1", "host", 1, MODEL, max_model_len=64, device="cpu", version="0")
    Fleet(pipeline.database).join(card)
    with pipeline.database.transaction() as session:
        session.execute(update(Worker).values(heartbeat_at=now(session) - timedelta(minutes=1)))
    pipeline.accept()
    pipeline.claim(lease_seconds=-1, worker_id="w1")


@pytest.mark.parametrize(
    ("away_seconds", "back_seconds", "expected"),
    [(0, 0, False), (10, 1, False), (20, 1, True), (20, 29, True), (20, 31, False), (500, 1, True)],
)
def test_for_a_lease_after_a_long_outage_nobody_is_called_dead(
    away_seconds: float, back_seconds: float, expected: bool
) -> None:
    clock = Clock()
    outage = Outage(clock)

    _live_through(outage, clock, away_seconds)
    clock.seconds += back_seconds

    assert outage.is_near(_LEASE_SECONDS) is expected


def test_later_successes_do_not_prolong_it() -> None:
    clock = Clock()
    outage = Outage(clock)
    _live_through(outage, clock, 100)

    clock.seconds += _LEASE_SECONDS + 1
    outage.note_success()

    assert not outage.is_near(_LEASE_SECONDS)


def test_single_errors_are_no_outage() -> None:
    clock = Clock()
    outage = Outage(clock)

    for _ in range(100):
        outage.note_failure()
        outage.note_success()
        clock.seconds += 1

    assert not outage.is_near(_LEASE_SECONDS)


def test_a_database_follows_its_own_outages(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(database, "outage", Outage(clock))
    engine = database.engine

    with monkeypatch.context() as patch:
        patch.setattr(database, "engine", Database("postgresql+psycopg://nobody@/none?host=/nowhere").engine)
        with pytest.raises(DatabaseUnavailable), database.reading() as session:
            now(session)
    clock.seconds += 60
    assert database.engine is engine
    with database.reading() as session:
        now(session)

    assert database.outage.is_near(_LEASE_SECONDS)


def test_an_outage_counts_while_it_lasts() -> None:
    clock = Clock()
    outage = Outage(clock)
    outage.note_failure()

    clock.seconds += 14
    assert not outage.is_near(_LEASE_SECONDS)
    clock.seconds += 2
    assert outage.is_near(_LEASE_SECONDS)


def test_short_waits_do_not_make_a_long_outage_forgotten() -> None:
    clock = Clock()
    outage = Outage(clock)
    _live_through(outage, clock, 60)

    for number in range(1000):
        with outage.waiting():
            clock.seconds += 0.01 if number % 10 else 0.15

    assert outage.is_near(_LEASE_SECONDS)


def test_what_was_before_its_start_no_process_knows() -> None:
    clock = Clock()
    outage = Outage(clock)
    outage.note_start()

    clock.seconds += _LEASE_SECONDS - 1
    assert outage.is_near(_LEASE_SECONDS)
    clock.seconds += 2
    assert not outage.is_near(_LEASE_SECONDS)


def test_who_comes_through_first_after_an_outage_rescues_nobody(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    _claim_and_fall_silent(pipeline)
    clock = Clock()
    monkeypatch.setattr(pipeline.database, "outage", Outage(clock))
    pipeline.database.outage.note_failure()
    clock.seconds += 60

    assert rescue(pipeline.database, silent_seconds=30, backoff=Backoff(0)) == []
    assert rescue(pipeline.database, silent_seconds=30, backoff=Backoff(0)) == []
    clock.seconds += 31
    assert len(rescue(pipeline.database, silent_seconds=30, backoff=Backoff(0))) == 1


def test_who_waited_long_for_the_lock_of_sqlite_rescues_nobody(
    migrated_file: Path, tmp_path: Path, queue: JobQueue, redis_url: str
) -> None:
    """As after a process that was frozen while it wrote: the heartbeats have waited as long."""
    shutil.copy(migrated_file, tmp_path / "headrace.db")
    database = Database(f"sqlite:///{tmp_path / 'headrace.db'}")
    with database.transaction() as session:
        project_id = default_project(session)
    clock = Clock()
    with Pipeline(database, queue, redis_url, project_id) as pipeline, ThreadPoolExecutor(1) as pool:
        _claim_and_fall_silent(pipeline)
        database.outage = Outage(clock)

        with database.transaction() as session:
            now(session)
            clock.was_asked.clear()
            rescuing = pool.submit(rescue, database, silent_seconds=30, backoff=Backoff(0))
            assert clock.was_asked.wait(60)
            clock.seconds += 20

        assert rescuing.result() == []
        clock.seconds += 31
        assert len(rescue(database, silent_seconds=30, backoff=Backoff(0))) == 1
    database.close()


def test_nobody_is_rescued_just_after_an_outage(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    _claim_and_fall_silent(pipeline)
    clock = Clock()
    monkeypatch.setattr(pipeline.database, "outage", Outage(clock))
    _live_through(pipeline.database.outage, clock, 60)

    assert rescue(pipeline.database, silent_seconds=30, backoff=Backoff(0)) == []
    clock.seconds += 31
    assert len(rescue(pipeline.database, silent_seconds=30, backoff=Backoff(0))) == 1


def test_whose_death_was_told_is_dead_in_an_outage_too(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    _claim_and_fall_silent(pipeline)
    pipeline.accept()
    pipeline.claim(lease_seconds=-1, worker_id="w2")
    clock = Clock()
    monkeypatch.setattr(pipeline.database, "outage", Outage(clock))
    pipeline.database.outage.note_start()

    bury(pipeline.database, "w2")

    (found,) = rescue(pipeline.database, silent_seconds=30, backoff=Backoff(0))
    job = pipeline.job(found)
    assert (job.status, job.isolation, job.crashes_alone) == ("queued", 1, 1)
    assert {(job.status, job.owner) for job in pipeline.jobs() if job.id != found} == {("running", "w1")}
