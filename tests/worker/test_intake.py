from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from engine.protocol import Room
from engine.tokenizer import Tokenizer
from models.job_store import JobStore
from models.queue import Ticket
from models.signals import Listener, Signal, Signals
from models.tables.job import Job, Lane
from tests.models.pipeline import MODEL
from tests.models.pipeline import Pipeline as Backlog
from tests.worker.waiting import eventually
from worker.events import Refused
from worker.intake import Intake
from worker.pipeline import Pipeline
from worker.prepare import Preparer
from worker.window import WindowLimits
from worker.window_reader import WindowReader

LIMITS = WindowLimits(max_jobs=4, max_tokens=10**6, max_wait_seconds=0.01)


class Desk:
    """Intake in its thread, and what goes in and out of it."""

    def __init__(self, backlog: Backlog, pipeline: Pipeline, redis_url: str, model: Path) -> None:
        self.backlog = backlog
        self.pipeline = pipeline
        self.signals = Signals(redis_url, "test")
        consumer = backlog.consumer("w1")
        self.intake = Intake(
            pipeline,
            database=backlog.database,
            consumer=consumer,
            signals=self.signals,
            reader=WindowReader(consumer, LIMITS, pipeline.stopping),
            preparer=Preparer(Tokenizer.load(model), max_model_len=64, default_max_tokens=16),
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
            thread.join(30)

    def depth(self) -> int:
        return self.backlog.queue.depth(MODEL, Lane.STANDARD)

    def jobs(self, status: str) -> list[Job]:
        return [job for job in self.backlog.jobs() if job.status == status]


@pytest.fixture
def desk(backlog: Backlog, pipeline: Pipeline, redis_url: str, tiny_model: Path) -> Iterator[Desk]:
    found = Desk(backlog, pipeline, redis_url, tiny_model)
    yield found
    found.signals.close()


def test_jobs_are_claimed_held_and_passed_on_in_order(desk: Desk) -> None:
    desk.backlog.accept(3, depth=10)

    with desk.running():
        passed_on = [desk.pipeline.ready.get(timeout=20) for _ in range(3)]

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
        first = [desk.pipeline.ready.get(timeout=20) for _ in range(4)]
        assert desk.pipeline.admission.wait(0) is None
        assert len(desk.jobs("running")) == 4

        # Two of them have arrived in the engine and the other two are done.
        desk.pipeline.admission.settle(Room(2, 4000), [found.cost_tokens for found in first])
        second = [desk.pipeline.ready.get(timeout=20) for _ in range(2)]

    assert len({found.job.id for found in first + second}) == 6
    assert len(desk.jobs("running")) == 6


def test_a_second_entry_of_a_job_is_dropped(desk: Desk) -> None:
    job_id = desk.backlog.accept(depth=10)
    desk.backlog.queue.publish(MODEL, Lane.STANDARD, [Ticket(job_id, 10)])

    with desk.running():
        desk.pipeline.ready.get(timeout=20)
        eventually(lambda: desk.depth() == 1)
        desk.backlog.queue.publish(MODEL, Lane.BULK, [Ticket(job_id, 10)])
        eventually(lambda: desk.backlog.queue.depth(MODEL, Lane.BULK) == 0)

    (row,) = desk.backlog.jobs()
    assert (row.status, row.attempt, row.token) == ("running", 1, 1)
    assert desk.pipeline.ready.empty()


def test_a_cancelled_job_is_dropped(desk: Desk) -> None:
    cancelled, other = desk.backlog.accept(depth=10), desk.backlog.accept(depth=10)
    JobStore(desk.backlog.database).cancel(desk.backlog.project_id, cancelled)

    with desk.running():
        assert desk.pipeline.ready.get(timeout=20).job.id == other
        eventually(lambda: desk.depth() == 1)

    assert desk.pipeline.ready.empty()
    assert desk.backlog.job(cancelled).status == "cancelled"


def test_an_entry_of_an_unknown_job_is_dropped(desk: Desk) -> None:
    desk.backlog.queue.publish(MODEL, Lane.STANDARD, [Ticket("job_unknown", 10)])

    with desk.running():
        eventually(lambda: desk.depth() == 0)

    assert desk.pipeline.ready.empty()


def test_an_overdue_job_expires_and_its_poller_is_told(desk: Desk, redis_url: str) -> None:
    told = threading.Event()
    job_id = desk.backlog.accept(depth=10, deadline_at=desk.backlog.time() - timedelta(seconds=1))
    listener = Listener(redis_url, "test", Signal.DONE, lambda ids: told.set() if job_id in ids else None)
    listener.start()
    with desk.backlog.queue._redis as client:
        eventually(lambda: dict(client.pubsub_numsub("test:done"))["test:done"])

    with desk.running():
        assert told.wait(20)

    listener.stop()
    assert desk.backlog.job(job_id).status == "expired"
    assert desk.depth() == 0


def test_a_prompt_over_the_context_is_refused_and_the_others_go_on(desk: Desk) -> None:
    too_long = {"model": MODEL, "prompt": "grind corn " * 50}
    refused, other = desk.backlog.accept(depth=10, body=too_long), desk.backlog.accept(depth=10)

    with desk.running():
        assert desk.pipeline.ready.get(timeout=20).job.id == other
        event = desk.pipeline.events.get(timeout=20)

    assert isinstance(event, Refused)
    assert (event.job.id, event.code) == (refused, "context_length_exceeded")
    # It holds its lease until the refusal is stored, and no seat.
    assert refused in {lease.job_id for lease in desk.pipeline.leases.all()}
    assert desk.pipeline.admission.wait(0) == Room(3, 4000 - desk_cost(desk, other))


def desk_cost(desk: Desk, job_id: str) -> int:
    """Tokens of `prompt 0` and the 16 of a completion."""
    (lease,) = (lease for lease in desk.pipeline.leases.all() if lease.job_id == job_id)
    body = {"model": MODEL, "prompt": "prompt 0"}
    assert lease.token == 1
    return len(desk.intake._preparer._tokenizer.encode_text(body["prompt"])) + 16


def test_entries_that_arrive_at_shutdown_are_given_back(desk: Desk) -> None:
    with desk.running():
        desk.pipeline.stopping.set()
        job_id = desk.backlog.accept(depth=10)

    row = desk.backlog.job(job_id)
    assert (row.status, row.attempt) == ("queued", 0)
    waiting = desk.backlog.delivered()
    if not waiting:
        # It was taken within the last read: the dispatcher owes it an entry at once.
        assert row.dispatched_at is None
        assert desk.depth() == 0
