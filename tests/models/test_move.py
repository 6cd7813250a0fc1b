from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.database import Database
from models.errors import JobAlreadyFinished
from models.job_store import JobStore
from models.lease import Held
from models.move import Move, move_jobs
from models.publication import Outcome, publish
from models.rescue import give_back
from models.tables.batch_job import BatchStatus
from models.tables.job import FINAL_STATUSES, LEGAL_TRANSITIONS, Job, JobStatus
from tests.models.pipeline import Pipeline, entry_of

LEGAL = {
    ("queued", "running"),
    ("queued", "cancelled"),
    ("queued", "expired"),
    ("running", "queued"),
    ("running", "succeeded"),
    ("running", "failed"),
    ("running", "cancelled"),
    ("running", "expired"),
}


@pytest.mark.parametrize("before", JobStatus)
@pytest.mark.parametrize("after", JobStatus)
def test_only_legal_moves_are_made(pipeline: Pipeline, before: JobStatus, after: JobStatus) -> None:
    job_id = pipeline.accept()
    pipeline.change(job_id, status=before)

    with pipeline.database.transaction() as session:
        moved = move_jobs(session, [job_id], lambda _job, _at: Move(after))

    legal = (before, after) in LEGAL
    assert [job.id for job in moved] == [job_id] * legal
    assert pipeline.job(job_id).status == (after if legal else before)


def test_final_statuses_are_those_without_a_way_out() -> None:
    assert {"succeeded", "failed", "cancelled", "expired"} == FINAL_STATUSES
    assert not FINAL_STATUSES & LEGAL_TRANSITIONS.keys()


def test_a_job_that_does_not_exist_is_left_out(database: Database) -> None:
    with database.transaction() as session:
        assert move_jobs(session, ["job_none"], lambda _job, _at: Move(JobStatus.CANCELLED)) == []


def _claim(pipeline: Pipeline, job: Job) -> None:
    pipeline.claim(job.id)


def _claim_for_no_time(pipeline: Pipeline, job: Job) -> None:
    pipeline.claim(job.id, lease_seconds=-1)


def _give_back(pipeline: Pipeline, job: Job) -> None:
    give_back(pipeline.database, [Held(job.id, job.token, entry_of(job))])


def _rescue(pipeline: Pipeline, _job: Job) -> None:
    pipeline.rescue()


def _claim_suspects(pipeline: Pipeline, _job: Job) -> None:
    pipeline.claim_suspects(lease_seconds=-1)


def _succeed(pipeline: Pipeline, job: Job) -> None:
    publish(pipeline.database, [Outcome(job.id, job.token, JobStatus.SUCCEEDED, body="{}")])


def _fail(pipeline: Pipeline, job: Job) -> None:
    publish(pipeline.database, [Outcome(job.id, job.token, JobStatus.FAILED, error="{}", error_code="x")])


def _publish_late(pipeline: Pipeline, job: Job) -> None:
    publish(pipeline.database, [Outcome(job.id, job.token - 1, JobStatus.SUCCEEDED, body="{}")])


def _cancel(pipeline: Pipeline, job: Job) -> None:
    try:
        JobStore(pipeline.database).cancel(pipeline.project_id, job.id)
    except JobAlreadyFinished:
        assert job.status in FINAL_STATUSES


def _expire(pipeline: Pipeline, job: Job) -> None:
    pipeline.change(job.id, deadline_at=pipeline.time(seconds_from_now=-1))
    pipeline.dispatcher().expire()


EVENTS: list[Callable[[Pipeline, Job], None]] = [
    _claim,
    _claim_for_no_time,
    _claim_suspects,
    _give_back,
    _rescue,
    _succeed,
    _fail,
    _publish_late,
    _cancel,
    _expire,
]


# One set of servers serves all examples: each works on a batch of its own.
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(events=st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 2)), max_size=14))
def test_whatever_happens_the_books_balance(
    pipeline: Pipeline, events: list[tuple[Callable[[Pipeline, Job], None], int]]
) -> None:
    batch_id = pipeline.accept(3)
    job_ids = [job.id for job in pipeline.jobs() if job.batch_id == batch_id]

    history = [pipeline.jobs(*job_ids)]
    for event, index in events:
        event(pipeline, history[-1][index])
        history.append(pipeline.jobs(*job_ids))

    assert pipeline.counted() == pipeline.recounted()
    batch = pipeline.batch(batch_id)
    statuses = [job.status for job in history[-1]]
    assert {status: getattr(batch, status) for status in JobStatus} == {
        status: statuses.count(status) for status in JobStatus
    }
    assert (batch.status == BatchStatus.COMPLETED) is (set(statuses) <= FINAL_STATUSES)
    for earlier, later in pairwise(history):
        for old, new in zip(earlier, later, strict=True):
            assert new.token >= old.token
            assert old.status not in FINAL_STATUSES or new.status == old.status
            assert old.status == new.status or (old.status, new.status) in LEGAL
