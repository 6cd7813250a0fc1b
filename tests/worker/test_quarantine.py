"""Suspects on one worker: alone in its engine, beside work that is not held up for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from models.lease import ClaimedJob
from tests.models.pipeline import MODEL
from tests.models.pipeline import Pipeline as Backlog
from tests.worker.waiting import eventually
from worker.pipeline import Pipeline
from worker.quarantine import Quarantine


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def quarantine(backlog: Backlog, pipeline: Pipeline, clock: Clock) -> Quarantine:
    return Quarantine(
        pipeline,
        database=backlog.database,
        model=MODEL,
        worker_id="w1",
        lease_seconds=30,
        max_jobs=8,
        clock=clock,
    )


def make_suspects(backlog: Backlog, count: int) -> None:
    """So many jobs that crashed together: suspects in groups of half of them."""
    backlog.accept(count)
    backlog.claim(lease_seconds=-1, worker_id="dead")
    backlog.rescue()


def finish_at_once(backlog: Backlog, pipeline: Pipeline) -> Callable[[ClaimedJob], None]:
    """An engine that takes no time."""

    def finish(job: ClaimedJob) -> None:
        backlog.publish(job)
        pipeline.leases.release([job.held])

    return finish


@contextmanager
def running(quarantine: Quarantine, passed_on: list[ClaimedJob]) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=quarantine.run_group, args=[passed_on.append], kwargs={"is_idle": True})
    thread.start()
    yield thread
    thread.join(60)
    assert not thread.is_alive()


def test_a_group_waits_until_all_others_have_left_and_keeps_the_engine_to_its_end(
    backlog: Backlog, pipeline: Pipeline, quarantine: Quarantine
) -> None:
    make_suspects(backlog, 4)
    free_id = backlog.accept()
    (free,) = backlog.claim(free_id)
    pipeline.leases.hold([free.held])
    passed_on: list[ClaimedJob] = []

    with running(quarantine, passed_on) as thread:
        # Claimed already, so that no second worker empties its engine for the same group.
        eventually(lambda: len(pipeline.leases.all()) == 3)
        assert passed_on == []
        pipeline.leases.release([free.held])
        eventually(lambda: len(passed_on) == 2)
        pipeline.leases.release([passed_on[0].held])
        assert thread.is_alive()
        pipeline.leases.release([passed_on[1].held])

    assert [job.status for job in backlog.jobs()].count("running") == 3


def test_a_worker_that_stops_passes_nothing_on(
    backlog: Backlog, pipeline: Pipeline, quarantine: Quarantine
) -> None:
    make_suspects(backlog, 2)
    free_id = backlog.accept()
    (free,) = backlog.claim(free_id)
    pipeline.leases.hold([free.held])
    passed_on: list[ClaimedJob] = []

    with running(quarantine, passed_on):
        eventually(lambda: len(pipeline.leases.all()) == 2)
        pipeline.stopping.set()

    assert passed_on == []


def test_without_suspects_there_is_nothing_to_run(quarantine: Quarantine) -> None:
    def refuse(job: ClaimedJob) -> None:
        raise AssertionError(job)

    assert not quarantine.run_group(refuse, is_idle=True)


def test_other_work_gets_as_much_time_as_a_group_took(
    backlog: Backlog, pipeline: Pipeline, quarantine: Quarantine, clock: Clock
) -> None:
    make_suspects(backlog, 6)
    finish = finish_at_once(backlog, pipeline)

    def finish_in_a_minute(job: ClaimedJob) -> None:
        clock.now += 20
        finish(job)

    assert quarantine.run_group(finish_in_a_minute, is_idle=False)
    clock.now += 59
    assert not quarantine.run_group(finish, is_idle=False)
    clock.now += 2
    assert quarantine.run_group(finish, is_idle=False)

    assert {job.status for job in backlog.jobs()} == {"succeeded"}


def test_where_nothing_else_waits_the_next_group_follows_at_once(
    backlog: Backlog, pipeline: Pipeline, quarantine: Quarantine, clock: Clock
) -> None:
    make_suspects(backlog, 6)
    finish = finish_at_once(backlog, pipeline)

    def finish_slowly(job: ClaimedJob) -> None:
        clock.now += 20
        finish(job)

    assert quarantine.run_group(finish_slowly, is_idle=True)
    assert quarantine.run_group(finish, is_idle=True)
    assert not quarantine.run_group(finish, is_idle=True)


def test_what_runs_here_counts_as_other_work(
    backlog: Backlog, pipeline: Pipeline, quarantine: Quarantine, clock: Clock
) -> None:
    make_suspects(backlog, 6)
    finish = finish_at_once(backlog, pipeline)

    def finish_slowly(job: ClaimedJob) -> None:
        clock.now += 20
        finish(job)

    assert quarantine.run_group(finish_slowly, is_idle=True)
    free_id = backlog.accept()
    (free,) = backlog.claim(free_id)
    pipeline.leases.hold([free.held])

    assert not quarantine.run_group(finish, is_idle=True)


def test_suspects_of_other_models_are_left_alone(
    backlog: Backlog, pipeline: Pipeline, quarantine: Quarantine
) -> None:
    make_suspects(backlog, 2)
    for job in backlog.jobs():
        backlog.change(job.id, model="another")

    assert not quarantine.run_group(finish_at_once(backlog, pipeline), is_idle=True)
