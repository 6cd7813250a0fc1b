"""Scenarios 5 to 8: a worker that is killed, at every step between its dispatch and its acknowledgement.

All of them at once, in one house: each step has a model, and so streams and workers, of its own.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from models.tables.job import Job, JobStatus
from tests.chaos.house import House, chaos_settings
from tests.chaos.part import Cradle
from tests.services.postgres_server import PostgresServer
from tests.services.redis_server import ValkeyServer


@dataclass(frozen=True, slots=True)
class Crash:
    """Where a worker dies with a job, and how the job stands when another worker is done with it."""

    failpoint: str
    num_attempts: int
    num_runs: int
    was_stored: bool = False


CRASHES = (
    Crash("dispatch_before_commit", 1, 1),
    Crash("dispatch_after_commit", 1, 1),
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


class Aftermath:
    """What is left when a worker was killed at each step, and others have gone on."""

    def __init__(self, house: House) -> None:
        self._house = house
        api = house.start_api()
        # Before there is a worker, so that each job waits for the dispatcher of its own.
        self._ids = {crash.failpoint: house.ask(api, model=crash.failpoint) for crash in CRASHES}
        doomed = [
            house.start("worker", fail=f"{name}:kill9:once", served_model_name=name) for name in self._ids
        ]
        self.exit_codes = [worker.wait() for worker in doomed]
        self._before = {name: house.statuses(ids) for name, ids in self._ids.items()}
        for name in self._ids:
            house.start("worker", served_model_name=name)
        house.check()

    def was_stored(self, crash: Crash) -> bool:
        """Whether the killed worker had stored its result."""
        return self._before[crash.failpoint] == {JobStatus.SUCCEEDED: 1}

    def job(self, crash: Crash) -> Job:
        """The job with which a worker was killed."""
        return self._house.jobs(self._ids[crash.failpoint])[0]

    def num_runs(self, crash: Crash) -> int:
        """How often that job came into an engine."""
        return self._house.num_runs(self._ids[crash.failpoint])[0]


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def aftermath(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    migrated_file: Path,
    byte_model: Path,
    cradle: Cradle,
    valkey_server: ValkeyServer,
) -> Iterator[Aftermath]:
    folder = tmp_path_factory.mktemp("crashes")
    valkey_server.flush()
    if request.param == "sqlite":
        shutil.copy(migrated_file, folder / "headrace.db")
        url = f"sqlite:///{folder / 'headrace.db'}"
    else:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        url = server.create_database()
    names = [crash.failpoint for crash in CRASHES]
    settings = chaos_settings(
        folder,
        byte_model,
        database_url=url,
        redis_url=valkey_server.url,
        served_model_name=names[0],
        models=",".join(names),
        # So many workers start at once here that a heartbeat may take a while to begin.
        lease_seconds=8.0,
    )
    with House(settings, cradle) as house:
        yield Aftermath(house)
    if request.param == "postgresql":
        server.drop_database(url)


def test_every_worker_was_killed_at_its_step(aftermath: Aftermath) -> None:
    assert aftermath.exit_codes == [-signal.SIGKILL] * len(CRASHES)


@pytest.mark.parametrize("crash", CRASHES, ids=lambda crash: crash.failpoint)
def test_another_worker_goes_on_where_a_killed_one_has_stopped(aftermath: Aftermath, crash: Crash) -> None:
    job = aftermath.job(crash)

    assert aftermath.was_stored(crash) is crash.was_stored
    assert (job.status, job.attempt, job.token) == ("succeeded", crash.num_attempts, crash.num_attempts)
    assert aftermath.num_runs(crash) == crash.num_runs
    # Who was alone in flight runs alone from then on.
    assert job.isolation == (1 if crash.num_attempts == 2 else 0)
