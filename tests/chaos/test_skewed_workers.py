"""Scenario 27: the machines of two workers have clocks that are an hour ahead and an hour behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from models.fleet import Fleet
from tests.chaos.faked_time import FakedTime
from tests.chaos.house import House
from tests.cli.process import REPOSITORY
from tests.worker.waiting import eventually

HOUR = 3600
#: Each imports all that it needs, under a clock that makes everything slower.
_START_SECONDS = 240.0


@pytest.fixture
def database_url(postgres_url: str) -> str:
    """A database with a clock of its own: that of SQLite is the worker's."""
    return postgres_url


@contextmanager
def worker_of(house: House, clock: FakedTime) -> Iterator[subprocess.Popen[bytes]]:
    """A worker on a machine with this clock."""
    with (house.settings.data_dir / "skewed.log").open("ab") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.skewed_worker"],
            cwd=house.settings.data_dir,
            env={
                **os.environ,
                "PYTHONPATH": str(REPOSITORY),
                **house.settings.as_environment(),
                **clock.environment,
            },
            stderr=log,
        )
    try:
        yield worker
    finally:
        worker.kill()
        worker.wait()


def await_all(house: House, *workers: subprocess.Popen[bytes]) -> dict[int, str]:
    """Wait until all of these take jobs and their heartbeats beat; return their ids by their process's."""

    def alive() -> dict[int, str]:
        log = (house.settings.data_dir / "skewed.log").read_text()
        assert all(worker.poll() is None for worker in workers), log
        return {card.pid: card.id for card in Fleet(house.database).alive() if card.stats}

    eventually(lambda: alive().keys() >= {worker.pid for worker in workers}, within_seconds=_START_SECONDS)
    return alive()


def test_workers_whose_clocks_are_wrong_lose_no_lease_and_expire_nothing(
    make_house: Callable[..., House], tmp_path: Path
) -> None:
    house = make_house(lease_seconds=5.0)
    ahead = FakedTime(tmp_path / "ahead", offset_seconds=HOUR)
    behind = FakedTime(tmp_path / "behind", offset_seconds=-HOUR)
    api = house.start_api()
    with worker_of(house, ahead) as first, worker_of(house, behind) as second:
        ids = await_all(house, first, second)
        # Longer than a lease, and done before the deadline by every clock but one that is an hour ahead.
        texts = [house.prompt("[slow:6]") for _ in range(16)]
        batch = api.submit({"requests": [{**house.body(text), "deadline": 1800} for text in texts]})
        jobs = house.jobs()
        house.asked |= {job.id: texts[job.line or 0] for job in jobs}
        # One whose deadline comes while it runs.
        text = house.prompt("[slow:600]")
        overdue = api.submit({**house.body(text), "deadline": 10})["id"]

        house.finish()

        assert batch["request_counts"]["total"] == len(jobs) == 16
        ended = house.jobs([job.id for job in jobs])
        assert {(job.status, job.attempt) for job in ended} == {("succeeded", 1)}
        assert {job.owner for job in ended} == {ids[first.pid], ids[second.pid]}
        (late,) = house.jobs([overdue])
        assert (late.status, late.error_code) == ("expired", "deadline_exceeded")
        assert late.finished_at is not None
        assert late.deadline_at is not None
        assert late.finished_at >= late.deadline_at
