from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from models.lease import claim, release_entries, renew
from models.rescue import give_back
from models.tables.job import Job, JobRequest, JobStatus, Lane
from models.tables.worker import Window
from tests.models.pipeline import MODEL, WINDOW, Pipeline, entry_of


def test_a_claim_brings_all_that_a_worker_needs(pipeline: Pipeline) -> None:
    job_id = pipeline.accept(seed=7, lane=Lane.BULK)

    (claimed,) = pipeline.claim(job_id, entry_id="5-1")

    assert (claimed.id, claimed.model, claimed.endpoint) == (job_id, MODEL, "/v1/completions")
    assert json.loads(claimed.body) == {"model": MODEL, "prompt": "prompt 0"}
    assert (claimed.lane, claimed.seed, claimed.deadline) == (Lane.BULK, 7, None)
    assert claimed.held.entry is not None
    assert (claimed.held.token, claimed.held.entry.entry_id) == (1, "5-1")
    job = pipeline.job(job_id)
    assert (job.status, job.attempt, job.token, job.owner, job.entry_id) == ("running", 1, 1, "w1", "5-1")
    assert job.started_at is not None
    assert job.lease_until is not None
    assert 29 < (job.lease_until - job.started_at).total_seconds() < 31


def test_the_window_is_recorded(pipeline: Pipeline) -> None:
    pipeline.accept(3, cost_tokens=50)

    pipeline.claim()

    (window_id,) = {job.window_id for job in pipeline.jobs()}
    with pipeline.database.reading() as session:
        window = session.get_one(Window, window_id)
    assert (window.worker_id, window.reason, window.num_jobs, window.num_tokens) == ("w1", "max_jobs", 3, 150)
    assert round((window.closed_at - window.opened_at).total_seconds(), 3) == 0.01


def test_the_order_of_the_window_is_kept(pipeline: Pipeline) -> None:
    pipeline.accept(5)
    job_ids = [job.id for job in pipeline.jobs()]
    shuffled = [job_ids[index] for index in (3, 0, 4, 2, 1)]

    assert [job.id for job in pipeline.claim(*shuffled)] == shuffled


@pytest.mark.parametrize("status", [status for status in JobStatus if status != JobStatus.QUEUED])
def test_only_queued_jobs_are_claimed(pipeline: Pipeline, status: JobStatus) -> None:
    job_id = pipeline.accept()
    pipeline.change(job_id, status=status)

    assert pipeline.claim(job_id) == []
    assert pipeline.job(job_id).status == status


def test_what_is_left_until_a_deadline_is_told_by_the_database(pipeline: Pipeline) -> None:
    job_id = pipeline.accept(deadline_seconds=60.0)

    began = time.monotonic()
    (claimed,) = pipeline.claim(job_id)
    ended = time.monotonic()

    job = pipeline.job(job_id)
    assert job.started_at is not None
    left = 60.0 - (job.started_at - job.created_at).total_seconds()
    assert claimed.deadline is not None
    assert began + left <= claimed.deadline <= ended + left


def test_an_overdue_job_expires_instead(pipeline: Pipeline) -> None:
    overdue, in_time = pipeline.accept(), pipeline.accept()
    pipeline.change(overdue, deadline_at=pipeline.time(seconds_from_now=-1))

    assert [job.id for job in pipeline.claim()] == [in_time]

    job = pipeline.job(overdue)
    assert (job.status, job.error_code, job.attempt) == ("expired", "deadline_exceeded", 0)


def test_an_entry_without_a_job_is_left_out(pipeline: Pipeline) -> None:
    assert pipeline.claim() == []


def test_of_claims_at_the_same_moment_one_wins(pipeline: Pipeline) -> None:
    num_threads = 3
    pipeline.accept(20)
    together = threading.Barrier(num_threads)

    def claim(number: int) -> list[str]:
        together.wait()
        return [job.id for job in pipeline.claim(worker_id=f"w{number}")]

    with ThreadPoolExecutor(num_threads) as pool:
        claimed = [job_id for won in pool.map(claim, range(num_threads)) for job_id in won]

    jobs = pipeline.jobs()
    assert sorted(claimed) == [job.id for job in jobs]
    assert {(job.attempt, job.token) for job in jobs} == {(1, 1)}
    assert pipeline.counted() == pipeline.recounted()


def test_renewing_prolongs_ones_own_leases_and_names_the_lost(pipeline: Pipeline) -> None:
    pipeline.accept(3)
    kept, cancelled, taken = pipeline.claim(lease_seconds=1)
    pipeline.change(cancelled.id, status="cancelled")
    pipeline.change(taken.id, token=2)

    lost = renew(pipeline.database, [job.held for job in (kept, cancelled, taken)], lease_seconds=500)

    assert lost == {cancelled.id, taken.id}
    kept_until, taken_until = (pipeline.job(job.id).lease_until for job in (kept, taken))
    assert kept_until is not None
    assert taken_until is not None
    assert (kept_until - taken_until).total_seconds() > 400


def test_renewing_nothing_is_nothing(pipeline: Pipeline) -> None:
    assert renew(pipeline.database, [], lease_seconds=1) == set()


def test_giving_back_does_not_count_as_an_attempt(pipeline: Pipeline) -> None:
    batch_id = pipeline.accept(1)
    (claimed,) = pipeline.claim()

    give_back(pipeline.database, [claimed.held])

    job = pipeline.job(claimed.id)
    assert (job.status, job.attempt, job.token) == ("queued", 0, 1)
    assert (job.owner, job.lease_until, job.entry_id, job.dispatched_at) == (None, None, None, None)
    assert pipeline.batch(batch_id).queued == 1
    assert pipeline.dispatcher().dispatch() == 1
    assert [job.held.token for job in pipeline.claim()] == [2]


def test_only_ones_own_leases_are_given_back(pipeline: Pipeline) -> None:
    pipeline.accept()
    (stale,) = pipeline.claim(lease_seconds=-1)
    pipeline.rescue()
    pipeline.claim_suspects()

    give_back(pipeline.database, [stale.held])

    job = pipeline.job(stale.id)
    assert (job.status, job.attempt, job.token) == ("running", 2, 2)


@pytest.mark.parametrize("status", [JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.EXPIRED])
def test_a_job_that_its_worker_has_ended_is_not_lost(pipeline: Pipeline, status: JobStatus) -> None:
    job_id = pipeline.accept()
    (claimed,) = pipeline.claim()
    pipeline.publish(claimed, status=status)

    assert renew(pipeline.database, [claimed.held], lease_seconds=100) == set()

    assert pipeline.job(job_id).lease_until is None


def test_entries_of_the_dead_are_owed_again_but_not_what_they_claimed(pipeline: Pipeline) -> None:
    queued, running = pipeline.accept(depth=10), pipeline.accept(depth=10)
    pipeline.claim(running)

    assert all(job.dispatched_at for job in pipeline.jobs())
    release_entries(pipeline.database, [entry_of(job) for job in pipeline.jobs()])

    assert pipeline.job(queued).dispatched_at is None
    assert pipeline.job(running).dispatched_at is not None


@pytest.mark.parametrize("broken", ["no request", "unknown lane"])
def test_a_job_that_cannot_be_read_fails_alone(pipeline: Pipeline, broken: str) -> None:
    batch_id = pipeline.accept(2)
    bad, good = (job.id for job in pipeline.jobs())
    entries = [entry_of(job) for job in pipeline.jobs()]
    with pipeline.database.transaction() as session:
        if broken == "no request":
            session.delete(session.get_one(JobRequest, bad))
        else:
            session.get_one(Job, bad).lane = "express"

    claimed = claim(pipeline.database, entries, worker_id="w1", lease_seconds=30, window=WINDOW)

    assert [job.id for job in claimed] == [good]
    job = pipeline.job(bad)
    assert (job.status, job.error_code, job.lease_until) == ("failed", "internal_error", None)
    batch = pipeline.batch(batch_id)
    assert (batch.running, batch.failed) == (1, 1)
