from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import func, select

from models.job_store import JobStore
from models.lease import ClaimedJob
from models.publication import Outcome, Usage, publish
from models.tables.batch_job import BatchStatus
from models.tables.incident import IncidentCount
from models.tables.job import JobResult, JobStatus
from tests.models.pipeline import Pipeline


def result(pipeline: Pipeline, job_id: str) -> JobResult | None:
    with pipeline.database.reading() as session:
        return session.get(JobResult, job_id)


def test_an_answer_is_stored_with_its_figures(pipeline: Pipeline) -> None:
    job_id = pipeline.accept()
    (claimed,) = pipeline.claim()

    published = pipeline.publish(claimed, usage=Usage(5, 7, 3), since_first_token_seconds=0.5)

    assert published == {job_id}
    job, stored = pipeline.job(job_id), result(pipeline, job_id)
    assert (job.status, job.error_code, job.lease_until) == ("succeeded", None, None)
    assert (job.num_prompt_tokens, job.num_completion_tokens, job.num_cached_tokens) == (5, 7, 3)
    assert job.finished_at is not None
    assert job.first_token_at is not None
    assert (job.finished_at - job.first_token_at).total_seconds() == 0.5
    assert stored is not None
    assert (stored.body, stored.error) == ('{"text":"hi"}', None)


def test_a_failure_is_stored_with_its_reason(pipeline: Pipeline) -> None:
    job_id = pipeline.accept()

    pipeline.publish(
        *pipeline.claim(), status=JobStatus.FAILED, body=None, error='{"code":"poison"}', error_code="poison"
    )

    job, stored = pipeline.job(job_id), result(pipeline, job_id)
    assert (job.status, job.error_code) == ("failed", "poison")
    assert stored is not None
    assert (stored.body, stored.error) == (None, '{"code":"poison"}')


def test_of_two_claims_published_together_the_newest_counts(pipeline: Pipeline) -> None:
    job_id = pipeline.accept()
    (old,) = pipeline.claim(lease_seconds=-1)
    pipeline.rescue()
    (new,) = pipeline.claim_suspects()
    answers = [
        Outcome(job_id, claimed.held.token, JobStatus.SUCCEEDED, body=body)
        for claimed, body in ((old, '"old"'), (new, '"new"'))
    ]

    assert publish(pipeline.database, answers) == {job_id}

    stored = result(pipeline, job_id)
    assert stored is not None
    assert stored.body == '"new"'


def test_a_second_answer_is_discarded(pipeline: Pipeline) -> None:
    job_id = pipeline.accept()
    (claimed,) = pipeline.claim()
    pipeline.publish(claimed)

    assert pipeline.publish(claimed, body='{"text":"again"}') == set()

    stored = result(pipeline, job_id)
    assert stored is not None
    assert stored.body == '{"text":"hi"}'


def test_the_answer_of_a_worker_that_lost_the_job_is_discarded(pipeline: Pipeline) -> None:
    job_id = pipeline.accept()
    (stale,) = pipeline.claim(lease_seconds=-1)
    pipeline.rescue()

    assert pipeline.publish(stale) == set()
    (owner,) = pipeline.claim_suspects()
    assert pipeline.publish(stale) == set()

    assert result(pipeline, job_id) is None
    assert pipeline.publish(owner) == {job_id}


def test_the_answer_to_a_cancelled_job_is_discarded(pipeline: Pipeline) -> None:
    job_id = pipeline.accept()
    (claimed,) = pipeline.claim()
    JobStore(pipeline.database).cancel(pipeline.project_id, job_id)

    assert pipeline.publish(claimed, usage=Usage(1, 1)) == set()

    assert result(pipeline, job_id) is None
    assert pipeline.job(job_id).num_prompt_tokens is None


def test_a_stale_answer_does_not_spoil_its_neighbours(pipeline: Pipeline) -> None:
    pipeline.accept(3)
    claimed = pipeline.claim()
    JobStore(pipeline.database).cancel(pipeline.project_id, claimed[1].id)

    assert pipeline.publish(*claimed) == {claimed[0].id, claimed[2].id}


def test_a_batch_adds_up_tokens_and_completes_with_its_last_job(pipeline: Pipeline) -> None:
    batch_id = pipeline.accept(3)
    first, second, third = pipeline.claim()

    pipeline.publish(first, second, usage=Usage(5, 7))
    before = pipeline.batch(batch_id)
    pipeline.publish(third, status=JobStatus.FAILED, body=None, error="{}", error_code="x")

    after = pipeline.batch(batch_id)
    assert (before.status, before.running, before.succeeded) == (BatchStatus.IN_PROGRESS, 1, 2)
    assert before.completed_at is None
    assert (after.status, after.running, after.succeeded, after.failed) == (BatchStatus.COMPLETED, 0, 2, 1)
    assert (after.num_prompt_tokens, after.num_completion_tokens) == (10, 14)
    assert after.completed_at is not None


def test_a_batch_completes_when_its_last_two_jobs_end_at_once(pipeline: Pipeline) -> None:
    together = threading.Barrier(2)

    def publish(claimed: ClaimedJob) -> None:
        together.wait()
        pipeline.publish(claimed)

    with ThreadPoolExecutor(2) as pool:
        for _ in range(25):
            batch_id = pipeline.accept(2)
            lines = [job.id for job in pipeline.jobs() if job.batch_id == batch_id]

            list(pool.map(publish, pipeline.claim(*lines)))

            batch = pipeline.batch(batch_id)
            assert (batch.status, batch.succeeded, batch.running) == (BatchStatus.COMPLETED, 2, 0)
    assert pipeline.counted() == pipeline.recounted()


def test_opposite_orders_do_not_block_each_other(pipeline: Pipeline) -> None:
    batch_ids = [pipeline.accept(10) for _ in range(2)]
    claimed = pipeline.claim()
    halves = [claimed[0::2], claimed[1::2][::-1]]
    together = threading.Barrier(2)

    def publish(number: int) -> set[str]:
        together.wait()
        return pipeline.publish(*halves[number])

    with ThreadPoolExecutor(2) as pool:
        published = list(pool.map(publish, range(2)))

    assert [len(ids) for ids in published] == [10, 10]
    assert [pipeline.batch(batch_id).status for batch_id in batch_ids] == [BatchStatus.COMPLETED] * 2


def test_an_error_that_may_not_come_again_is_tried_three_times_more(pipeline: Pipeline) -> None:
    job_id = pipeline.accept()
    outcome = {
        "status": JobStatus.FAILED,
        "body": None,
        "error": '{"code":"out_of_memory"}',
        "error_code": "out_of_memory",
        "may_retry": True,
    }

    for number in (1, 2, 3):
        assert pipeline.publish(*pipeline.claim(job_id), **outcome) == {job_id}
        job = pipeline.job(job_id)
        assert (job.status, job.attempt, job.num_retries, job.owner) == ("queued", number, number, None)
        # 2 s, 4 s, 8 s, and up to half as much again.
        waits = (job.available_at - pipeline.time()).total_seconds()
        assert 2**number - 1 < waits <= 2**number * 1.5
        assert pipeline.dispatcher().dispatch() == 0
        assert result(pipeline, job_id) is None
        pipeline.change(job_id, available_at=pipeline.time())
    pipeline.publish(*pipeline.claim(job_id), **outcome)

    job = pipeline.job(job_id)
    assert (job.status, job.attempt, job.error_code) == ("failed", 4, "out_of_memory")
    assert result(pipeline, job_id) is not None
    assert pipeline.counted() == pipeline.recounted()


def test_a_suspect_that_ends_with_such_an_error_is_free(pipeline: Pipeline) -> None:
    job_id = pipeline.accept()
    pipeline.claim(lease_seconds=-1)
    pipeline.rescue()

    (suspect,) = pipeline.claim_suspects()
    pipeline.publish(suspect, status=JobStatus.FAILED, body=None, error="{}", may_retry=True)

    job = pipeline.job(job_id)
    assert (job.status, job.isolation, job.crashes_alone) == ("queued", 0, 0)


@pytest.mark.parametrize(
    "unwritable",
    [{"usage": Usage(2**70, 1)}, {"body": '"\ud800"'}],
    ids=["a number too large", "a lone surrogate"],
)
def test_a_result_that_cannot_be_stored_fails_its_job_alone(
    pipeline: Pipeline, unwritable: dict[str, Any]
) -> None:
    pipeline.accept(3)
    claimed = pipeline.claim()
    outcomes = [Outcome(job.id, job.held.token, JobStatus.SUCCEEDED, body='"hi"') for job in claimed]
    outcomes[1] = replace(outcomes[1], **unwritable)

    assert publish(pipeline.database, outcomes) == {job.id for job in claimed}

    rows = [pipeline.job(job.id) for job in claimed]
    assert [(row.status, row.error_code) for row in rows] == [
        ("succeeded", None),
        ("failed", "internal_error"),
        ("succeeded", None),
    ]
    stored = result(pipeline, claimed[1].id)
    assert stored is not None
    assert "cannot be stored" in (stored.error or "")
    assert pipeline.counted() == pipeline.recounted()


@pytest.mark.parametrize(
    ("seconds", "status"), [(600, JobStatus.QUEUED), (1, JobStatus.EXPIRED), (-1, JobStatus.EXPIRED)]
)
def test_a_job_that_got_more_time_while_it_ran_is_begun_anew(
    pipeline: Pipeline, seconds: int, status: JobStatus
) -> None:
    job_id = pipeline.accept(deadline_at=pipeline.time(seconds_from_now=60))
    (claimed,) = pipeline.claim(job_id)
    pipeline.change(job_id, deadline_at=pipeline.time(seconds_from_now=seconds))

    outcome = {"status": JobStatus.EXPIRED, "body": None, "error_code": "deadline_exceeded"}
    # The second time after a lost reply.
    stored = [pipeline.publish(claimed, **outcome) for _ in range(2)]

    assert stored == [{job_id}, set()]
    job = pipeline.job(job_id)
    assert (job.status, job.owner) == (status, None if status == JobStatus.QUEUED else "w1")
    assert pipeline.counted() == pipeline.recounted()
    with pipeline.database.reading() as session:
        assert session.scalar(select(func.sum(IncidentCount.number))) is None
