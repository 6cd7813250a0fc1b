from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from engine.protocol import Room
from engine.tokenizer import Tokenizer
from models.errors import DatabaseUnavailable, QueueUnavailable
from models.job_store import JobStore
from models.lease import ClaimedJob, claim
from models.queue import Ticket
from models.signals import Signal, Signals
from models.tables.job import Job, JobRequest, Lane
from tests.models.pipeline import MODEL
from tests.models.pipeline import Pipeline as Backlog
from tests.services.redis_server import ValkeyServer
from tests.worker.job_examples import open_to_all, same_rooms
from tests.worker.listening import listening
from tests.worker.waiting import eventually
from worker.events import ReadyJob, Refused
from worker.intake import Intake
from worker.pipeline import Pipeline
from worker.prepare import Preparer
from worker.quarantine import Quarantine
from worker.window import WindowLimits
from worker.window_reader import ClosedWindow, WindowReader

LIMITS = WindowLimits(max_jobs=4, max_tokens=10**6, max_wait_seconds=0.01)


class Desk:
    """Intake in its thread, and what goes in and out of it."""

    def __init__(self, backlog: Backlog, pipeline: Pipeline, redis_url: str, model: Path) -> None:
        self.backlog = backlog
        self.pipeline = pipeline
        self.signals = Signals(redis_url, "test")
        self.consumer = consumer = backlog.consumer("w1")
        self.intake = Intake(
            pipeline,
            database=backlog.database,
            consumer=consumer,
            signals=self.signals,
            reader=WindowReader(consumer, LIMITS, pipeline.stopping),
            preparer=Preparer(Tokenizer.load(model), max_model_len=64, default_max_tokens=16),
            quarantine=Quarantine(
                pipeline,
                database=backlog.database,
                model=MODEL,
                worker_id="w1",
                lease_seconds=30,
                max_jobs=4,
            ),
            lease_seconds=30,
        )

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self.intake.run)
        thread.start()
        try:
            yield
        finally:
            self.pipeline.stopping.set()
            thread.join(60)

    def depth(self) -> int:
        return self.backlog.queue.depth(MODEL, Lane.STANDARD)

    def rewrite(self, job_id: str, **body: str) -> None:
        """Change the request of a job that is accepted already."""
        with self.backlog.database.transaction() as session:
            session.get_one(JobRequest, job_id).body = json.dumps({"model": MODEL, **body})

    def jobs(self, status: str) -> list[Job]:
        return [job for job in self.backlog.jobs() if job.status == status]


@pytest.fixture
def desk(
    backlog: Backlog,
    pipeline: Pipeline,
    redis_url: str,
    tiny_model: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Desk]:
    # Stopping waits for the end of one blocking read.
    monkeypatch.setattr("worker.window_reader.MAX_BLOCK_SECONDS", 0.2)
    found = Desk(backlog, pipeline, redis_url, tiny_model)
    yield found
    found.signals.close()


def test_jobs_are_claimed_held_and_passed_on_in_order(desk: Desk) -> None:
    desk.backlog.accept(3, depth=10)

    with desk.running():
        passed_on = [desk.pipeline.ready.get(timeout=60) for _ in range(3)]

    rows = desk.backlog.jobs()
    assert [found.job.id for found in passed_on] == [row.id for row in rows]
    assert {(row.status, row.owner, row.attempt) for row in rows} == {("running", "w1", 1)}
    held = desk.pipeline.leases.all()
    assert sorted(lease.job_id for lease in held) == [row.id for row in rows]
    # Entries stay until the result is safe.
    assert desk.depth() == 3


def test_no_more_are_taken_than_the_engine_has_seats(desk: Desk) -> None:
    desk.backlog.accept(10, depth=10)

    with desk.running():
        first = [desk.pipeline.ready.get(timeout=60) for _ in range(4)]
        opening = desk.pipeline.admission.wait(0)
        assert opening is not None
        assert opening.lanes == (Lane.INTERACTIVE,)
        assert len(desk.jobs("running")) == 4

        # Two of them have arrived in the engine and the other two are done.
        desk.pipeline.admission.settle(same_rooms(2, 4000), first)
        second = [desk.pipeline.ready.get(timeout=60) for _ in range(2)]

    assert len({found.job.id for found in first + second}) == 6
    assert len(desk.jobs("running")) == 6


def test_a_second_entry_of_a_job_is_dropped(desk: Desk) -> None:
    job_id = desk.backlog.accept(depth=10)
    desk.backlog.queue.append(MODEL, Lane.STANDARD, [Ticket(job_id, 10)])

    with desk.running():
        desk.pipeline.ready.get(timeout=60)
        eventually(lambda: desk.depth() == 1)
        desk.backlog.queue.append(MODEL, Lane.BULK, [Ticket(job_id, 10)])
        eventually(lambda: desk.backlog.queue.depth(MODEL, Lane.BULK) == 0)

    (row,) = desk.backlog.jobs()
    assert (row.status, row.attempt, row.token) == ("running", 1, 1)
    assert desk.pipeline.ready.empty()


def test_a_cancelled_job_is_dropped(desk: Desk) -> None:
    cancelled, other = desk.backlog.accept(depth=10), desk.backlog.accept(depth=10)
    JobStore(desk.backlog.database).cancel(desk.backlog.project_id, cancelled)

    with desk.running():
        assert desk.pipeline.ready.get(timeout=60).job.id == other
        eventually(lambda: desk.depth() == 1)

    assert desk.pipeline.ready.empty()
    assert desk.backlog.job(cancelled).status == "cancelled"


def test_an_entry_of_an_unknown_job_is_dropped(desk: Desk) -> None:
    desk.backlog.queue.append(MODEL, Lane.STANDARD, [Ticket("job_unknown", 10)])

    with desk.running():
        eventually(lambda: desk.depth() == 0)

    assert desk.pipeline.ready.empty()


def test_an_overdue_job_expires_and_its_poller_is_told(desk: Desk, valkey_server: ValkeyServer) -> None:
    told = threading.Event()
    job_id = desk.backlog.accept(depth=10, deadline_at=desk.backlog.time() - timedelta(seconds=1))

    def hear(job_ids: Sequence[str]) -> None:
        if job_id in job_ids:
            told.set()

    with listening(valkey_server, Signal.DONE, hear), desk.running():
        assert told.wait(60)

    assert desk.backlog.job(job_id).status == "expired"
    assert desk.depth() == 0


def test_a_prompt_over_the_context_is_refused_and_the_others_go_on(desk: Desk) -> None:
    refused, other = desk.backlog.accept(depth=10), desk.backlog.accept(depth=10)
    desk.rewrite(refused, prompt="grind corn " * 50)

    with desk.running():
        found = desk.pipeline.ready.get(timeout=60)
        event = desk.pipeline.events.get(timeout=60)

    assert found.job.id == other
    assert isinstance(event, Refused)
    assert (event.job.id, event.code) == (refused, "context_length_exceeded")
    # It holds its lease until the refusal is stored, and no seat.
    assert refused in {lease.job_id for lease in desk.pipeline.leases.all()}
    assert desk.pipeline.admission.wait(0) == open_to_all(3, 4000 - found.need.cache_tokens)


def test_entries_that_arrive_at_shutdown_are_given_back(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = desk.backlog.accept(depth=10)
    read = WindowReader.take

    def take(reader: WindowReader, **given: Any) -> ClosedWindow | None:
        desk.pipeline.stopping.set()
        return read(reader, **given)

    monkeypatch.setattr(WindowReader, "take", take)

    desk.intake.run()

    row = desk.backlog.job(job_id)
    assert (row.status, row.attempt, row.dispatched_at) == ("queued", 0, None)
    assert desk.depth() == 0
    assert desk.pipeline.leases.all() == []


def test_goes_on_when_redis_is_back(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.intake._RETRY_SECONDS", 0.01)
    read, lost = WindowReader.take, threading.Semaphore(2)

    def take(reader: WindowReader, **given: Any) -> ClosedWindow | None:
        if lost.acquire(blocking=False):
            raise QueueUnavailable
        return read(reader, **given)

    monkeypatch.setattr(WindowReader, "take", take)
    job_id = desk.backlog.accept(depth=10)

    with desk.running():
        assert desk.pipeline.ready.get(timeout=60).job.id == job_id


def test_goes_on_when_the_database_is_back(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.intake._RETRY_SECONDS", 0.01)
    lost = threading.Semaphore(1)
    was_lost = threading.Event()

    def take(*args: Any, **values: Any) -> list[ClaimedJob]:
        if lost.acquire(blocking=False):
            was_lost.set()
            raise DatabaseUnavailable
        return claim(*args, **values)

    monkeypatch.setattr("worker.intake.claim", take)
    first = desk.backlog.accept(depth=10)

    with desk.running():
        assert was_lost.wait(60)
        second = desk.backlog.accept(depth=10)
        assert desk.pipeline.ready.get(timeout=60).job.id == second

    # Its entry was read and not claimed: it is found by its idle time.
    assert desk.backlog.job(first).status == "queued"
    (entry,) = (one for one in desk.consumer.reclaim(idle_seconds=0) if one.ticket.job_id == first)
    assert entry.lane == Lane.STANDARD


def test_suspects_are_taken_without_the_queue_and_before_anybody_else(desk: Desk, pipeline: Pipeline) -> None:
    desk.backlog.accept(2)
    desk.backlog.claim(lease_seconds=-1, worker_id="dead")
    desk.backlog.rescue()
    suspects = [job.id for job in desk.backlog.jobs()]
    free = desk.backlog.accept(depth=10)

    with desk.running():
        first = desk.pipeline.ready.get(timeout=60)
        # It is alone until it has ended.
        assert (first.job.id, len(desk.pipeline.leases.all())) == (suspects[0], 1)
        desk.pipeline.admission.settle(same_rooms(4, 4000), [first])
        pipeline.leases.release([first.job.held])
        others = [desk.pipeline.ready.get(timeout=60)]
        desk.pipeline.admission.settle(same_rooms(4, 4000), [others[0]])
        pipeline.leases.release([others[0].job.held])
        others.append(desk.pipeline.ready.get(timeout=60))

    assert {found.job.id for found in others} == {suspects[1], free}


def test_an_error_that_nobody_foresaw_is_endured(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.tolerance._FIRST_PAUSE_SECONDS", 0)
    read, broken = WindowReader.take, threading.Semaphore(5)

    def take(reader: WindowReader, **given: Any) -> ClosedWindow | None:
        if broken.acquire(blocking=False):
            raise LookupError("a fault")
        return read(reader, **given)

    monkeypatch.setattr(WindowReader, "take", take)
    job_id = desk.backlog.accept(depth=10)

    with capture_logs() as logs, desk.running():
        assert desk.pipeline.ready.get(timeout=60).job.id == job_id

    assert [line["event"] for line in logs].count("intake_failed") == 5


def test_an_error_that_comes_again_and_again_ends_intake(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.tolerance._FIRST_PAUSE_SECONDS", 0)

    def take(*_: Any, **__: Any) -> None:
        raise LookupError("a fault")

    monkeypatch.setattr(WindowReader, "take", take)

    with capture_logs(), pytest.raises(LookupError):
        desk.intake.run()


def fill_with_bulk(desk: Desk) -> list[ReadyJob]:
    """Four bulk jobs have every seat; more of them wait in Redis."""
    desk.backlog.accept(8, depth=10, lane=Lane.BULK)
    taken = [desk.pipeline.ready.get(timeout=60) for _ in range(4)]
    desk.pipeline.admission.settle({**same_rooms(4, 4000), Lane.BULK: Room(0, 0)}, taken)
    return taken


def test_an_urgent_job_is_taken_although_every_seat_is(desk: Desk) -> None:
    with desk.running():
        bulk = fill_with_bulk(desk)
        urgent = desk.backlog.accept(depth=10, lane=Lane.INTERACTIVE)
        found = desk.pipeline.ready.get(timeout=60)

    assert found.job.id == urgent
    assert {one.job.lane for one in bulk} == {Lane.BULK}
    # The other bulk jobs wait where another worker can have them.
    assert sorted(job.lane for job in desk.jobs("running")) == ["bulk"] * 4 + ["interactive"]
    assert desk.pipeline.ready.empty()


def test_urgent_jobs_are_looked_for_and_never_waited_for(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Intake sleeps in one lane while another one has room."""
    read, looked = WindowReader.take, threading.Event()
    asleep: list[tuple[Lane, ...]] = []

    def take(reader: WindowReader, **given: Any) -> ClosedWindow | None:
        if given["wait"]:
            asleep.append(given["lanes"])
        elif given["lanes"] == (Lane.INTERACTIVE, Lane.STANDARD):
            looked.set()
        return read(reader, **given)

    monkeypatch.setattr(WindowReader, "take", take)
    with desk.running():
        fill_with_bulk(desk)
        assert looked.wait(60)

    assert set(asleep) == {tuple(Lane)}


def test_a_seat_that_comes_free_is_filled_at_once_although_urgent_jobs_are_looked_for(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine runs short of work while intake waits for urgent jobs that never come."""
    # Longer than the test: nothing but the word of a free seat wakes it.
    monkeypatch.setattr("worker.intake._URGENT_POLL_SECONDS", 600)
    with desk.running():
        fill_with_bulk(desk)
        desk.pipeline.admission.settle(same_rooms(1, 4000))
        found = desk.pipeline.ready.get(timeout=60)
        desk.pipeline.stopping.set()
        desk.pipeline.admission.settle(same_rooms(4, 4000))

    assert found.job.lane == Lane.BULK
