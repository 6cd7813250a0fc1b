"""Scenarios 5 to 8: a worker that is killed, at every step between its read and its acknowledgement."""

from __future__ import annotations

import signal
from dataclasses import dataclass

import pytest

from models.tables.job import JobStatus
from tests.chaos.house import House


@dataclass(frozen=True, slots=True)
class Crash:
    """Where a worker dies with a job, and how the job stands when another worker is done with it."""

    failpoint: str
    num_attempts: int
    num_runs: int
    was_stored: bool = False


_CRASHES = (
    # Not claimed yet, or not for good: the attempt is not burned.
    Crash("read_after", 1, 1),
    Crash("claim_before_commit", 1, 1),
    # Claimed: it counts, and is computed again wherever it was.
    Crash("claim_after_commit", 2, 1),
    Crash("compute_before_step", 2, 2),
    Crash("compute_after_step", 2, 2),
    Crash("publish_before_commit", 2, 2),
    # Stored: its entry is found and dropped, and no engine sees it again.
    Crash("publish_after_commit", 1, 1, was_stored=True),
    Crash("acknowledge_after", 1, 1, was_stored=True),
)


def die_and_go_on(house: House, crash: Crash) -> None:
    doomed = house.start_worker(fail=f"{crash.failpoint}:kill9:once")
    ids = house.ask(house.start_api())
    assert doomed.wait() == -signal.SIGKILL
    was_stored = house.statuses(ids) == {JobStatus.SUCCEEDED: 1}
    house.start_worker()

    house.check()

    (job,) = house.jobs(ids)
    assert was_stored is crash.was_stored
    assert (job.attempt, job.token) == (crash.num_attempts, crash.num_attempts)
    assert house.num_runs(ids) == [crash.num_runs]
    # Who was alone in flight runs alone from then on.
    assert job.isolation == (1 if crash.num_attempts == 2 else 0)


@pytest.mark.parametrize("crash", _CRASHES, ids=lambda crash: crash.failpoint)
def test_another_worker_goes_on_where_a_killed_one_has_stopped(house: House, crash: Crash) -> None:
    die_and_go_on(house, crash)


@pytest.mark.slow
class TestOnPostgresql:
    @pytest.fixture
    def database_url(self, postgres_url: str) -> str:
        return postgres_url

    @pytest.mark.parametrize("crash", _CRASHES, ids=lambda crash: crash.failpoint)
    def test_another_worker_goes_on_where_a_killed_one_has_stopped(self, house: House, crash: Crash) -> None:
        die_and_go_on(house, crash)


@pytest.mark.parametrize(
    "failpoint", ["dispatch_before_commit", "dispatch_after_commit", "dispatch_after_xadd"]
)
def test_jobs_are_published_though_their_dispatcher_is_killed(house: House, failpoint: str) -> None:
    # Accept leaves all of them to the dispatcher: nobody has said yet that the streams are known.
    ids = house.ask(house.start_api(), 6)
    doomed = house.start("worker", fail=f"{failpoint}:kill9:once")
    assert doomed.wait() == -signal.SIGKILL

    house.start_worker()

    house.check()
    assert house.num_hits(failpoint) == 1
    assert max(job.attempt for job in house.jobs(ids)) <= 2
