"""Scenarios 9 and 10: a worker that stands still, and one that only seems to."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing

import pytest

from tests.chaos.house import PATIENCE_SECONDS, House
from tests.chaos.part import Part
from tests.worker.waiting import eventually
from worker.heartbeat import process_state


class TestFrozen:
    @pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
    def database_url(self, request: pytest.FixtureRequest) -> str:
        return str(request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url"))

    def test_of_a_worker_frozen_past_its_leases_nothing_counts_any_more(self, house: House) -> None:
        # It has computed, and waits until it is made to stand still.
        frozen = house.start_worker(fail="compute_after_step:sleep=6:once")
        api = house.start_api()
        ids = house.ask(api)
        house.await_hit("compute_after_step")
        eventually(lambda: _is_caught_without_locks(house, frozen), within_seconds=PATIENCE_SECONDS)
        second = house.start_worker(fail="compute_before_step:sleep=3:once")
        house.await_hit("compute_before_step")

        frozen.send(signal.SIGCONT)

        # It brings its result, which is another's to bring now.
        eventually(lambda: "results_discarded" in frozen.log, within_seconds=PATIENCE_SECONDS)
        house.check()
        (job,) = house.jobs(ids)
        assert job.token > 1
        assert 1 < house.num_runs(ids)[0] <= job.token
        # And goes on as a worker like any other.
        second.kill()
        more = house.ask(api, 3)
        house.check()
        assert house.num_runs(more) == [1, 1, 1]


def _is_caught_without_locks(house: House, worker: Part) -> bool:
    """Stop a worker, and let it go on if it is in the middle of a transaction on SQLite.

    Nobody could write then, until its heartbeat kills it.
    """
    worker.send(signal.SIGSTOP)
    eventually(lambda: process_state(worker.pid) == "T", within_seconds=PATIENCE_SECONDS)
    if not house.database.is_sqlite:
        return True
    with closing(sqlite3.connect(house.database.engine.url.database or "", timeout=0)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            worker.send(signal.SIGCONT)
            return False
    return True


def test_a_computation_that_holds_the_interpreter_keeps_its_lease(make_house: Callable[..., House]) -> None:
    # Long enough for a heartbeat process that shares the machine.
    house = make_house(lease_seconds=4.0)
    worker = house.start_worker()
    # This one would take the job as soon as its lease ran out.
    house.start_worker(max_num_seqs=1)
    api = house.start_api()

    ids = house.ask(api, marks=f"[hold-gil:{1.75 * house.settings.lease_seconds}]")

    house.check()
    assert [(job.attempt, job.token) for job in house.jobs(ids)] == [(1, 1)]
    assert house.num_runs(ids) == [1]
    assert "leases_lost" not in worker.log
