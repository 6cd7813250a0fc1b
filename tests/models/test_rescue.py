"""What a crash leaves of a worker's jobs, in SQL."""

from __future__ import annotations

import pytest

from models.backoff import Backoff
from models.fleet import Fleet, WorkerCard
from models.job_error import JobError
from models.job_store import JobStore
from models.lease import ClaimedJob
from models.rescue import bury, give_back, give_back_crashed, rescue
from tests.models.pipeline import MODEL, Pipeline


def join(pipeline: Pipeline, worker_id: str = "w1") -> Fleet:
    fleet = Fleet(pipeline.database)
    fleet.join(WorkerCard(worker_id, "host", 1, MODEL, max_model_len=64, device="cpu", version="0"))
    return fleet


def crash(pipeline: Pipeline, jobs: list[ClaimedJob], way: str, *, backoff_seconds: float = 0) -> None:
    if way == "engine":
        held = [job.held for job in jobs]
        give_back_crashed(pipeline.database, held, backoff=Backoff(backoff_seconds))
    else:
        rescue(pipeline.database, backoff=Backoff(backoff_seconds))


def lanes_of(pipeline: Pipeline) -> set[tuple[int, int]]:
    return {(job.isolation, job.crashes_alone) for job in pipeline.jobs()}


def test_a_lease_that_ran_out_is_rescued_and_counts(pipeline: Pipeline) -> None:
    overdue, held, queued = (pipeline.accept() for _ in range(3))
    pipeline.claim(overdue, lease_seconds=-1)
    pipeline.claim(held, worker_id="w2")

    assert rescue(pipeline.database) == [overdue]
    assert rescue(pipeline.database) == []

    job = pipeline.job(overdue)
    assert (job.status, job.attempt, job.owner, job.dispatched_at) == ("queued", 1, None, None)
    assert pipeline.job(held).status == "running"
    assert pipeline.job(queued).status == "queued"
    assert pipeline.counted() == pipeline.recounted()


@pytest.mark.parametrize("way", ["worker", "engine"])
def test_all_that_were_in_flight_are_suspects_of_half_that_number(pipeline: Pipeline, way: str) -> None:
    pipeline.accept(6)
    jobs = pipeline.claim(lease_seconds=-1)

    crash(pipeline, jobs, way, backoff_seconds=500)

    assert {(job.status, job.attempt, job.isolation) for job in pipeline.jobs()} == {("queued", 1, 3)}
    # In company, nobody waits.
    assert len(pipeline.claim_suspects()) == 3


def test_suspects_are_not_taken_from_the_queue_nor_put_into_it(pipeline: Pipeline) -> None:
    pipeline.accept(4)
    pipeline.claim(lease_seconds=-1)
    pipeline.rescue()
    free = pipeline.accept()

    assert [job.id for job in pipeline.claim()] == [free]
    assert pipeline.dispatcher().dispatch() == 0
    group = pipeline.claim_suspects()
    assert [job.held.entry for job in group] == [None, None]
    assert [job.held.token for job in group] == [2, 2]
    # Of two workers that ask, each gets others.
    others = pipeline.claim_suspects(worker_id="w2")
    assert len({job.id for job in group} | {job.id for job in others}) == 4
    assert pipeline.claim_suspects(worker_id="w3") == []


@pytest.mark.parametrize("way", ["worker", "engine"])
def test_one_of_32_fails_after_eight_crashes_and_the_others_succeed(pipeline: Pipeline, way: str) -> None:
    batch_id = pipeline.accept(32)
    bad = pipeline.jobs()[20].id
    num_crashes = 0
    group = pipeline.claim(lease_seconds=-1)
    while group:
        if bad in {job.id for job in group}:
            num_crashes += 1
            crash(pipeline, group, way)
        else:
            pipeline.publish(*group)
        group = pipeline.claim_suspects(lease_seconds=-1)

    assert num_crashes == 8
    job = pipeline.job(bad)
    assert (job.status, job.attempt, job.error_code) == ("failed", 8, "poison")
    assert job.finished_at is not None
    record = JobStore(pipeline.database).find(pipeline.project_id, bad)
    error = JobError.of(record.job, record.result)
    assert error is not None
    assert (error.code, error.is_ours) == ("poison", True)
    batch = pipeline.batch(batch_id)
    assert (batch.status, batch.succeeded, batch.failed) == ("completed", 31, 1)
    assert pipeline.counted() == pipeline.recounted()


def test_after_a_crash_alone_a_job_waits(pipeline: Pipeline) -> None:
    job_id = pipeline.accept()
    pipeline.claim(lease_seconds=-1)

    rescue(pipeline.database)

    job = pipeline.job(job_id)
    waits = (job.available_at - pipeline.time()).total_seconds()
    assert 25 < waits <= 45
    assert (job.isolation, job.crashes_alone) == (1, 1)
    assert pipeline.claim_suspects() == []
    pipeline.change(job_id, available_at=pipeline.time())
    assert [found.id for found in pipeline.claim_suspects()] == [job_id]


def test_suspects_that_waited_beside_free_jobs_are_not_blamed(pipeline: Pipeline) -> None:
    pipeline.accept(4)
    pipeline.claim(lease_seconds=-1)
    pipeline.rescue()
    waiting = pipeline.claim_suspects(lease_seconds=-1)
    free = pipeline.accept()
    pipeline.claim(free, lease_seconds=-1)

    pipeline.rescue()

    rows = pipeline.jobs(*(job.id for job in waiting))
    # As if they had not been claimed for the second time.
    assert {(job.status, job.isolation, job.attempt) for job in rows} == {("queued", 2, 1)}
    job = pipeline.job(free)
    assert (job.isolation, job.crashes_alone) == (1, 1)


def test_what_a_dead_worker_held_is_rescued_all_at_once(pipeline: Pipeline) -> None:
    """Though it claimed some later, whose leases still hold."""
    pipeline.accept(4)
    overdue = [job.id for job in pipeline.jobs()][:1]
    pipeline.claim(*overdue, lease_seconds=-1)
    pipeline.claim()
    other = pipeline.accept()
    pipeline.claim(other, worker_id="w2")

    assert len(rescue(pipeline.database)) == 4

    assert {(job.isolation, job.crashes_alone) for job in pipeline.jobs() if job.id != other} == {(2, 0)}
    assert pipeline.job(other).status == "running"


def test_after_a_death_that_was_told_no_lease_has_to_run_out(pipeline: Pipeline) -> None:
    fleet = join(pipeline)
    pipeline.accept(4)
    pipeline.claim()
    assert rescue(pipeline.database) == []

    bury(pipeline.database, "w1")

    assert fleet.alive() == []
    time_passes = pipeline.time()
    while pipeline.time() == time_passes:
        pass
    assert len(rescue(pipeline.database)) == 4
    assert lanes_of(pipeline) == {(2, 0)}


def test_a_job_that_a_living_worker_lost_sight_of_is_nobodys_fault(pipeline: Pipeline) -> None:
    join(pipeline)
    lost, kept = pipeline.accept(), pipeline.accept()
    pipeline.claim(lost, lease_seconds=-1)
    pipeline.claim(kept)

    assert rescue(pipeline.database) == [lost]

    job = pipeline.job(lost)
    assert (job.status, job.isolation, job.crashes_alone) == ("queued", 0, 0)


def test_what_is_given_back_keeps_its_suspicion(pipeline: Pipeline) -> None:
    pipeline.accept(4)
    pipeline.claim(lease_seconds=-1)
    pipeline.rescue()

    give_back(pipeline.database, [job.held for job in pipeline.claim_suspects()])

    assert lanes_of(pipeline) == {(2, 0)}
    assert {job.attempt for job in pipeline.jobs()} == {1}


def test_only_ones_own_leases_are_given_back_after_a_crash(pipeline: Pipeline) -> None:
    pipeline.accept(2)
    stale = pipeline.claim(lease_seconds=-1)
    pipeline.rescue()
    (new,) = pipeline.claim_suspects(worker_id="w2")

    assert give_back_crashed(pipeline.database, [job.held for job in stale]) == []

    job = pipeline.job(new.id)
    assert (job.status, job.owner, job.crashes_alone) == ("running", "w2", 0)
