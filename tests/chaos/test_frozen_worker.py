"""Scenarios 9 and 10: a worker that stands still, and one that only seems to."""

from __future__ import annotations

import signal

import pytest

from tests.chaos.house import PATIENCE_SECONDS, House
from tests.worker.waiting import eventually


class TestFrozen:
    @pytest.fixture
    def database_url(self, any_database_url: str) -> str:
        return any_database_url

    def test_of_a_worker_frozen_past_its_leases_nothing_counts_any_more(self, house: House) -> None:
        # It has computed, and stands still before it can say so.
        frozen = house.start_worker(fail="compute_after_step:sleep=3:once")
        api = house.start_api()
        ids = house.ask(api)
        house.await_hit("compute_after_step")
        frozen.send(signal.SIGSTOP)
        second = house.start_worker()
        house.finish(ids)
        (stored,) = house.jobs(ids)

        frozen.send(signal.SIGCONT)

        # It brings its result, which nobody wants any more.
        eventually(lambda: "results_discarded" in frozen.log, within_seconds=PATIENCE_SECONDS)
        house.check()
        (job,) = house.jobs(ids)
        assert (job.owner, job.token, job.finished_at) == (stored.owner, stored.token, stored.finished_at)
        assert (job.owner, job.token) == (house.id_of(second), 2)
        assert house.num_runs(ids) == [2]
        # And goes on as a worker like any other.
        second.kill()
        more = house.ask(api, 3)
        house.check()
        assert house.num_runs(more) == [1, 1, 1]


def test_a_computation_that_holds_the_interpreter_keeps_its_lease(house: House) -> None:
    worker = house.start_worker()
    # This one would take the job as soon as its lease ran out.
    house.start_worker(max_num_seqs=1)
    api = house.start_api()

    ids = house.ask(api, marks=f"[hold-gil:{2.5 * house.settings.lease_seconds}]")

    house.check()
    assert [(job.attempt, job.token) for job in house.jobs(ids)] == [(1, 1)]
    assert house.num_runs(ids) == [1]
    assert "leases_lost" not in worker.log
