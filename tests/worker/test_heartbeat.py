"""The heartbeat as the process that it is, beside a parent that is stopped, killed or hung."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from sqlalchemy import update

from models.errors import DatabaseUnavailable
from models.fleet import Fleet, WorkerCard
from models.lease import WindowRecord, claim
from models.settings import Settings
from models.tables.job import Lane
from models.tables.worker import Worker
from tests.cli.process import ends_within
from tests.models.pipeline import MODEL
from tests.models.pipeline import Pipeline as Backlog
from tests.services.redis_server import ValkeyServer
from tests.worker.lease_holder import hold
from tests.worker.waiting import eventually
from worker.heartbeat import Heart, Hold, Lost, Message, Stop, process_state
from worker.progress import Progress

LEASE_SECONDS = 0.8


@dataclass
class Case:
    """A claimed job, and what can be seen of its lease."""

    backlog: Backlog
    server: ValkeyServer
    settings: Settings
    job_id: str

    def __post_init__(self) -> None:
        self.consumer = self.backlog.consumer("w1")
        entries = self.consumer.read({Lane.STANDARD: 1})
        self.delivered_at = time.monotonic()
        (self.claimed,) = claim(
            self.backlog.database,
            entries,
            worker_id="w1",
            lease_seconds=LEASE_SECONDS,
            window=WindowRecord("max_jobs", 0.0),
        )

    def lease_left(self) -> float:
        """Seconds until the lease ends; negative when it has."""
        until = self.backlog.job(self.job_id).lease_until
        assert until is not None
        return (until - self.backlog.time()).total_seconds()

    def is_renewed(self) -> bool:
        """Whether the lease is longer than the claim has made it."""
        passed = time.monotonic() - self.delivered_at
        return self.lease_left() > max(0.0, LEASE_SECONDS - passed) + 0.1

    def idle_seconds(self) -> float:
        with self.server.client() as client:
            stream = self.backlog.queue.stream(MODEL, Lane.STANDARD)
            (row,) = client.xpending_range(stream, "w", "-", "+", 1)
        return float(row["time_since_delivered"]) / 1000

    def join_fleet(self) -> None:
        """Let the holder of the lease be a worker."""
        Fleet(self.backlog.database).join(WorkerCard("w1", "host", 1, MODEL, 512, "cpu", "0"))

    def worker(self) -> Worker:
        with self.backlog.database.reading() as session:
            return session.get_one(Worker, "w1")

    def two_beats_later(self) -> Worker:
        for _ in range(2):
            before = self.worker().heartbeat_at
            eventually(lambda before=before: self.worker().heartbeat_at != before)  # type: ignore[misc]
        return self.worker()


@pytest.fixture
def case(backlog: Backlog, valkey_server: ValkeyServer, settings: Callable[..., Settings]) -> Case:
    given: dict[str, Any] = {
        "database_url": f"{backlog.database.engine.url}",
        "redis_url": valkey_server.url,
        "redis_namespace": "test",
        "model": MODEL,
        "lease_seconds": LEASE_SECONDS,
        "log_level": "error",
    }
    return Case(backlog, valkey_server, settings(**given), backlog.accept(depth=10))


def test_renews_the_lease_in_sql_and_the_idle_time_in_redis(case: Case) -> None:
    with hold(case.settings, "w1", [case.claimed.held]):
        eventually(case.is_renewed)
        eventually(lambda: time.monotonic() - case.delivered_at - case.idle_seconds() > 0.3)

    assert case.backlog.job(case.job_id).token == 1


def test_a_worker_lives_whatever_keeps_its_leases_from_it(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(case.backlog.database)
    fleet.join(WorkerCard("w1", "host", 1, MODEL, 100, "cpu", "0"))
    long_ago = case.backlog.time(seconds_from_now=-500)
    with case.backlog.database.transaction() as session:
        session.execute(update(Worker).values(heartbeat_at=long_ago))

    def fail(*_: object, **__: object) -> None:
        raise DatabaseUnavailable("a lock was not to be had")

    def stop_once_alive(pipe: Connection[Message, Lost]) -> None:
        try:
            eventually(fleet.alive)
        finally:
            pipe.send(Stop())

    monkeypatch.setattr("worker.heartbeat.renew", fail)
    ours, theirs = Pipe()
    with ours, theirs:
        ours.send(Hold((case.claimed.held,)))
        Thread(target=stop_once_alive, args=(ours,)).start()
        Heart(case.settings, "w1", theirs, Progress()).run()

    assert [worker.id for worker in fleet.alive()] == ["w1"]


def test_ends_with_a_worker_that_was_killed(case: Case) -> None:
    patient = case.settings.model_copy(update={"lease_seconds": 500.0})
    case.backlog.change(case.job_id, lease_until=case.backlog.time(seconds_from_now=500))
    with hold(patient, "w1", [case.claimed.held]) as holder:
        holder.process.kill()

        assert ends_within(holder.heartbeat_pid, 60)
    # It has told of the death: nobody has to wait until the leases run out.
    assert case.lease_left() <= 0


def test_ends_with_a_worker_that_ends_by_itself(case: Case) -> None:
    with hold(case.settings, "w1", [case.claimed.held]) as holder:
        holder.process.communicate()

        assert holder.process.returncode == 0
        assert ends_within(holder.heartbeat_pid, 0)


def test_does_not_renew_for_a_stopped_worker(case: Case) -> None:
    with hold(case.settings, "w1", [case.claimed.held]) as holder:
        eventually(case.is_renewed)
        holder.process.send_signal(signal.SIGSTOP)
        eventually(lambda: case.lease_left() < 0)
        assert process_state(holder.process.pid) == "T"

        holder.process.send_signal(signal.SIGCONT)

        eventually(lambda: case.lease_left() > 0)


def test_kills_a_worker_whose_step_never_ends(case: Case) -> None:
    impatient = case.settings.model_copy(update={"max_step_seconds": 0.3})

    with hold(impatient, "w1", [case.claimed.held], in_step=True) as holder:
        assert holder.process.wait(60) == -signal.SIGKILL
        assert ends_within(holder.heartbeat_pid, 60)


def test_kills_a_worker_that_stays_stopped(case: Case) -> None:
    impatient = case.settings.model_copy(update={"max_step_seconds": 0.3})

    with hold(impatient, "w1", [case.claimed.held]) as holder:
        eventually(case.is_renewed)
        holder.process.send_signal(signal.SIGSTOP)

        assert holder.process.wait(60) == -signal.SIGKILL
        assert ends_within(holder.heartbeat_pid, 60)


def test_lets_a_worker_live_that_is_between_steps(case: Case) -> None:
    impatient = case.settings.model_copy(update={"max_step_seconds": 0.05})

    with hold(impatient, "w1", [case.claimed.held]) as holder:
        # Renewed many limits after its last step.
        eventually(case.is_renewed)

        assert holder.process.poll() is None


def test_outlives_a_redis_that_is_away(case: Case) -> None:
    elsewhere = case.settings.model_copy(update={"redis_url": "unix:///nowhere/redis.sock"})

    with hold(elsewhere, "w1", [case.claimed.held]):
        for _ in range(3):
            before = case.backlog.job(case.job_id).lease_until
            eventually(lambda before=before: case.backlog.job(case.job_id).lease_until != before)  # type: ignore[misc]


def test_tells_when_it_saw_the_worker_compute(case: Case) -> None:
    case.join_fleet()
    with hold(case.settings, "w1", [case.claimed.held]) as holder:
        assert case.two_beats_later().progress_at is None
        holder.step()
        eventually(lambda: case.worker().progress_at is not None)
        computed_at = case.worker().progress_at
        # It is no longer computing.
        assert case.two_beats_later().progress_at == computed_at


def test_a_step_that_goes_on_is_progress(case: Case) -> None:
    case.join_fleet()
    with hold(case.settings, "w1", [case.claimed.held], in_step=True):
        for _ in range(2):
            before = case.worker().progress_at
            eventually(lambda before=before: case.worker().progress_at != before)  # type: ignore[misc]


def test_tells_a_stopped_process_from_a_running_one() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        process.send_signal(signal.SIGSTOP)
        eventually(lambda: process_state(process.pid) == "T")
        process.kill()
        eventually(lambda: process_state(process.pid) == "Z")
    assert process_state(os.getpid()) in "RS"
    assert process_state(process.pid) == "R"
    assert not Path(f"/proc/{process.pid}").exists()
