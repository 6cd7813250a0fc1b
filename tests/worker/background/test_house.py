"""Each chore by its name, on a database and a queue in use. Here no message is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import DEFAULT, patch

import pytest
from structlog.testing import capture_logs

from models.settings import Settings
from models.tables.job import Lane
from tests.models.batch_kit import BatchKit, requests
from tests.models.pipeline import MODEL
from tests.models.pipeline import Pipeline as Backlog
from tests.services.redis_server import ValkeyServer
from worker.background.app import make_app
from worker.background.house import House
from worker.background.schedule import Schedule


@pytest.fixture
def house(
    settings: Callable[..., Settings], backlog: Backlog, redis_url: str
) -> Iterator[tuple[Settings, Schedule]]:
    """Settings of two models, of which the backlog's is not the first, and the schedule for them."""
    given = settings(
        database_url=f"{backlog.database.engine.url}",
        redis_url=redis_url,
        redis_namespace="test",
        model="big",
        models=f"big,{MODEL}",
        lease_seconds=0.001,
    )
    found = House(given, "mill:1:x")
    yield given, found.schedule()
    found.close()


@pytest.fixture
def schedule(house: tuple[Settings, Schedule]) -> Schedule:
    return house[1]


def test_waiting_jobs_of_every_model_are_published(backlog: Backlog, schedule: Schedule) -> None:
    job_id = backlog.accept()

    schedule.run("dispatch:big")
    assert backlog.queue.depth(MODEL, Lane.STANDARD) == 0
    schedule.run(f"dispatch:{MODEL}")

    assert backlog.delivered() == [job_id]


def test_jobs_whose_lease_ran_out_go_back_to_the_queue(backlog: Backlog, schedule: Schedule) -> None:
    job_id = backlog.accept()
    backlog.claim(lease_seconds=-1)

    schedule.run("rescue")

    assert (backlog.job(job_id).status, backlog.job(job_id).owner) == ("queued", None)


def test_overdue_jobs_expire(backlog: Backlog, schedule: Schedule) -> None:
    overdue = backlog.accept(deadline_at=backlog.time() - timedelta(seconds=1))
    in_time = backlog.accept(deadline_at=backlog.time() + timedelta(hours=1))

    schedule.run("expire")

    assert [backlog.job(job_id).status for job_id in (overdue, in_time)] == ["expired", "queued"]


def test_an_entry_that_redis_has_lost_is_owed_again(backlog: Backlog, schedule: Schedule) -> None:
    job_id = backlog.accept()
    backlog.change(job_id, dispatched_at=backlog.time(seconds_from_now=-60))

    schedule.run(f"dispatch:{MODEL}")

    assert backlog.delivered() == [job_id]


def test_an_entry_of_a_dead_consumer_is_replaced(backlog: Backlog, schedule: Schedule) -> None:
    job_id = backlog.accept(depth=10)
    assert backlog.consumer("dead").read({Lane.STANDARD: 1})

    schedule.run(f"dispatch:{MODEL}")

    assert backlog.delivered() == [job_id]
    assert backlog.queue.depth(MODEL, Lane.STANDARD) == 0


def test_a_batch_is_read_and_its_lines_are_jobs(house: tuple[Settings, Schedule], backlog: Backlog) -> None:
    given, schedule = house
    kit = BatchKit(backlog.database, Path(given.blob_url), given, backlog.project_id)
    first, second = kit.submit(requests(3)), kit.submit(["{"])

    schedule.run("batches:1")

    assert [kit.batch(batch_id).status for batch_id in (first, second)] == ["in_progress", "failed"]
    assert [job.status for job in kit.jobs(first)] == ["queued"] * 3
    schedule.run(f"dispatch:{MODEL}")
    assert backlog.delivered(Lane.BULK) == [job.id for job in kit.jobs(first)]


def test_a_clock_that_is_set_back_does_not_silence_beat(house: tuple[Settings, Schedule]) -> None:
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    with patch.multiple("worker.background.app", datetime=DEFAULT, time=DEFAULT) as clocks:
        clocks["datetime"].now.return_value = noon
        clocks["time"].monotonic.return_value = 500.0
        every = make_app(*house).conf.beat_schedule["rescue"]["schedule"]

        clocks["datetime"].now.return_value = noon - timedelta(hours=1)
        clocks["time"].monotonic.return_value = 501.0
        assert every.remaining_estimate(noon).total_seconds() == 1
        clocks["time"].monotonic.return_value = 502.0
        assert every.is_due(noon).is_due


def test_what_is_stuck_and_a_redis_that_may_evict_are_logged_until_they_end(
    house: tuple[Settings, Schedule], backlog: Backlog, valkey_server: ValkeyServer
) -> None:
    job_id = backlog.accept()
    watch = next(chore for chore in house[1] if chore.name == "watch")
    with valkey_server.client() as client, capture_logs() as logs:
        watch.do()
        assert logs == []
        backlog.change(job_id, available_at=backlog.time(seconds_from_now=-300))
        client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            watch.do()
            watch.do()
        finally:
            client.config_set("maxmemory-policy", "noeviction")
        backlog.claim()
        watch.do()

    told = [(log["event"], log.get("model"), log["log_level"]) for log in logs]
    assert told == 2 * [("redis_unfit", None, "error"), ("jobs_stuck", MODEL, "error")]
    assert "allkeys-lru" in logs[0]["fault"]
    assert 300 <= logs[1]["oldest_queued_age_seconds"] < 700


def test_every_chore_is_sent_and_a_message_is_dropped_once_others_have_come(
    house: tuple[Settings, Schedule],
) -> None:
    entries = make_app(*house).conf.beat_schedule

    assert {name: entry["schedule"].run_every.total_seconds() for name, entry in entries.items()} == {
        "dispatch:big": 1,
        f"dispatch:{MODEL}": 1,
        "rescue": 2,
        "expire": 2,
        "forget": 60,
        "forget_files": 60,
        "watch": 30,
        "batches:1": 1,
        "batches:2": 1,
    }
    assert {name: entry["args"] for name, entry in entries.items()} == {name: (name,) for name in entries}
    assert {entry["options"]["expires"] for entry in entries.values()} == {10, 30, 60}
