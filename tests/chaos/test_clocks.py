"""Scenarios 27 and 28: clocks that are wrong by an hour, and one that is set back while it is in use."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from models.dispatch import Dispatcher
from models.fleet import Fleet, WorkerCard
from models.ids import new_id
from models.signals import Signals
from models.tables.job import Lane
from tests.chaos.faked_time import FakedTime
from tests.models.pipeline import MODEL, Pipeline
from tests.services.redis_server import ValkeyServer
from worker.job_care import JobCare

HOUR = 3600
LEASE_SECONDS = 30.0


@pytest.fixture
def clock(tmp_path: Path) -> FakedTime:
    """The clock of a Valkey."""
    return FakedTime(tmp_path / "clock")


@pytest.fixture
def redis_url(clock: FakedTime) -> Iterator[str]:
    with ValkeyServer(environment=clock.environment) as server:
        yield server.url


def entry_ids(pipeline: Pipeline, redis_url: str) -> list[tuple[int, int]]:
    entries = pipeline.consumer(new_id("reader")).read({Lane.STANDARD: 100})
    return [(int(left), int(right)) for left, right in (entry.entry_id.split("-") for entry in entries)]


def test_entries_keep_their_order_when_the_clock_of_redis_is_set_back(
    pipeline: Pipeline, clock: FakedTime, redis_url: str
) -> None:
    pipeline.accept(3, depth=10)
    clock.set(-HOUR)
    pipeline.accept(3, depth=10)

    ids = entry_ids(pipeline, redis_url)

    assert len(ids) == 6
    assert all(earlier < later for earlier, later in pairwise(ids))
    # It really went back: without that the ids would be in order by themselves.
    assert ids[3][0] == ids[2][0]


def test_nothing_hangs_on_the_clock_of_redis(pipeline: Pipeline, clock: FakedTime, redis_url: str) -> None:
    unclaimed, claimed = pipeline.accept(depth=10), pipeline.accept(depth=10)
    signals = Signals(redis_url, "test")
    fleet = Fleet(pipeline.database)
    fleet.join(WorkerCard("alive", "host", 1, MODEL, 64, "cpu", "0"))
    alive = pipeline.consumer("alive")
    care = JobCare(
        database=pipeline.database,
        consumer=alive,
        dispatcher=Dispatcher(pipeline.database, pipeline.queue, model=MODEL, depth=10),
        fleet=fleet,
        signals=signals,
        lease_seconds=LEASE_SECONDS,
    )
    # One worker dies between read and claim of the first job, and while it computes the second.
    assert len(pipeline.consumer("dead").read({Lane.STANDARD: 2})) == 2
    pipeline.claim(claimed, worker_id="dead", lease_seconds=-1)
    clock.set(-HOUR)

    care.rescue()
    care.dispatch()

    # The one is published anew at once, the other waits for nothing but its turn as a suspect.
    entries = alive.read({Lane.STANDARD: 10})
    assert [entry.ticket.job_id for entry in entries] == [unclaimed]
    assert (pipeline.job(claimed).status, pipeline.job(claimed).isolation) == ("queued", 1)
    assert alive.renew(entries) == {entries[0].entry_id}
    alive.acknowledge(entries)
    assert pipeline.queue.depth(MODEL, Lane.STANDARD) == 0
    signals.close()
