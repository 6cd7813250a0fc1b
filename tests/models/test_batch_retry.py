"""The lines of a batch that are asked once more."""

from __future__ import annotations

from datetime import timedelta

import pytest

from models.batch_change import cancel_batch, pause_batch
from models.batch_retry import retry_batch, retry_chunk
from models.batch_state import BatchStep
from models.batch_work import BatchWork, WorkLease, WorkLost
from models.errors import BatchNotFound, BatchNotRetryable
from models.retry import retry_job
from models.tables.batch_job import BatchStatus
from models.tables.job import JobRequest, JobStatus
from tests.models.batch_hands import run_out
from tests.models.batch_rows import change_batch, counters_of, lines_of, refuse_line, split_batch
from tests.models.pipeline import Pipeline

ERROR = '{"code":"engine_error","message":"m","param":null}'


def over(pipeline: Pipeline, count: int = 4, **values: object) -> str:
    """A batch whose first line was answered, whose second failed, and whose others expired."""
    batch_id = split_batch(pipeline, count)
    first, second, *_ = (job.id for job in lines_of(pipeline, batch_id))
    pipeline.publish(*pipeline.claim(first))
    pipeline.publish(*pipeline.claim(second), status=JobStatus.FAILED, body=None, error=ERROR)
    for job in lines_of(pipeline, batch_id)[2:]:
        pipeline.change(job.id, deadline_at=pipeline.time(seconds_from_now=-1))
    pipeline.dispatcher().expire()
    plain = {"status": BatchStatus.EXPIRED, "expired_at": pipeline.time(), "assembly_line": None}
    change_batch(pipeline.database, batch_id, **{**plain, "output_version": 1, **values})
    return batch_id


def claimed(pipeline: Pipeline) -> tuple[BatchWork, WorkLease]:
    work = BatchWork(pipeline.database)
    lease = work.claim()
    assert lease is not None
    return work, lease


def retry_all(pipeline: Pipeline, *, chunk: int = 2) -> None:
    work, lease = claimed(pipeline)
    while work.next_step(lease) == BatchStep.RETRY:
        retry_chunk(work, lease, chunk=chunk)
    work.release(lease)


def test_each_line_without_an_answer_gets_another_job(pipeline: Pipeline) -> None:
    batch_id = over(pipeline)
    before = lines_of(pipeline, batch_id)
    retry_batch(pipeline.database, pipeline.project_id, batch_id)

    retry_all(pipeline)

    after = lines_of(pipeline, batch_id)
    assert [(job.line, job.revision, job.status) for job in after] == [
        (0, 0, "succeeded"),
        (1, 1, "queued"),
        (2, 1, "queued"),
        (3, 1, "queued"),
    ]
    assert [job.retry_of for job in after] == [None, *(job.id for job in before[1:])]
    assert [job.seed for job in after] == [job.seed for job in before]
    batch = pipeline.batch(batch_id)
    assert (batch.status, batch.retry_line, batch.retry_statuses) == (BatchStatus.IN_PROGRESS, None, None)
    assert counters_of(batch) == {"queued": 3, "succeeded": 1}
    assert pipeline.counted() == pipeline.recounted()
    with pipeline.database.reading() as session:
        bodies = [session.get_one(JobRequest, job.id).body for job in after]
    assert bodies == [f'{{"model":"tiny","prompt":"prompt {line}"}}' for line in range(4)]
    assert len(pipeline.claim(*(job.id for job in after[1:]))) == 3


def test_only_lines_of_the_statuses_that_are_asked_for(pipeline: Pipeline) -> None:
    batch_id = over(pipeline)
    retry_batch(pipeline.database, pipeline.project_id, batch_id, statuses=[JobStatus.FAILED])

    retry_all(pipeline)

    assert counters_of(pipeline.batch(batch_id)) == {"queued": 1, "succeeded": 1, "expired": 2}


def test_a_line_that_holds_no_valid_request_is_not_asked_again(pipeline: Pipeline) -> None:
    batch_id = split_batch(pipeline, 2)
    refused, cancelled = (job.id for job in lines_of(pipeline, batch_id))
    refuse_line(pipeline, refused)
    cancel_batch(pipeline.database, pipeline.project_id, batch_id)
    change_batch(pipeline.database, batch_id, status=BatchStatus.CANCELLED, sweep_line=None)
    pipeline.change(cancelled, status=JobStatus.CANCELLED)
    with pytest.raises(BatchNotRetryable, match="failed"):
        retry_batch(pipeline.database, pipeline.project_id, batch_id, statuses=[JobStatus.FAILED])

    retry_batch(pipeline.database, pipeline.project_id, batch_id)
    retry_all(pipeline)

    assert [job.revision for job in lines_of(pipeline, batch_id)] == [0, 1]


@pytest.mark.parametrize("has_window", [False, True])
def test_the_new_jobs_have_the_end_of_their_batch(pipeline: Pipeline, has_window: bool) -> None:
    batch_id = over(pipeline, expires_at=pipeline.time(seconds_from_now=-1))

    window = "2h" if has_window else None
    retry_batch(pipeline.database, pipeline.project_id, batch_id, completion_window=window)
    retry_all(pipeline)

    batch = pipeline.batch(batch_id)
    hours = 2 if has_window else 24
    assert batch.completion_window == f"{hours}h"
    assert batch.expires_at is not None
    assert abs(batch.expires_at - pipeline.time() - timedelta(hours=hours)) < timedelta(minutes=5)
    assert {job.deadline_at for job in lines_of(pipeline, batch_id)[1:]} == {batch.expires_at}


def test_new_jobs_of_a_paused_batch_are_held_and_in_its_lane(pipeline: Pipeline) -> None:
    batch_id = over(pipeline)
    retry_batch(pipeline.database, pipeline.project_id, batch_id)
    pause_batch(pipeline.database, pipeline.project_id, batch_id)
    change_batch(pipeline.database, batch_id, lane="standard", sweep_line=None)

    retry_all(pipeline)

    assert {(job.held, job.lane) for job in lines_of(pipeline, batch_id)[1:]} == {(1, "standard")}
    assert pipeline.counted() == pipeline.recounted()
    assert pipeline.dispatcher().dispatch() == 0


def test_a_cancel_in_the_middle_ends_the_retry(pipeline: Pipeline) -> None:
    batch_id = over(pipeline)
    retry_batch(pipeline.database, pipeline.project_id, batch_id)
    work, lease = claimed(pipeline)
    retry_chunk(work, lease, chunk=2)

    cancel_batch(pipeline.database, pipeline.project_id, batch_id)
    retry_chunk(work, lease, chunk=2)

    assert work.next_step(lease) == BatchStep.SWEEP
    assert [job.revision for job in lines_of(pipeline, batch_id)] == [0, 1, 0, 0]


def test_a_line_that_somebody_retries_meanwhile_is_not_doubled(pipeline: Pipeline) -> None:
    batch_id = over(pipeline)
    second = lines_of(pipeline, batch_id)[1]
    retry_batch(pipeline.database, pipeline.project_id, batch_id)
    again = retry_job(pipeline.database, pipeline.project_id, second.id)

    retry_all(pipeline)

    assert lines_of(pipeline, batch_id)[1].id == again
    assert counters_of(pipeline.batch(batch_id)) == {"queued": 3, "succeeded": 1}
    assert pipeline.counted() == pipeline.recounted()


def test_a_list_is_over_again_with_its_last_retry(pipeline: Pipeline) -> None:
    batch_id = pipeline.accept(2)
    pipeline.publish(*pipeline.claim(), status=JobStatus.FAILED, body=None, error=ERROR)
    assert pipeline.batch(batch_id).status == BatchStatus.COMPLETED
    retry_batch(pipeline.database, pipeline.project_id, batch_id)
    retry_all(pipeline)
    again = pipeline.batch(batch_id)

    pipeline.publish(*pipeline.claim(*(job.id for job in lines_of(pipeline, batch_id))))

    batch = pipeline.batch(batch_id)
    assert (again.status, again.completed_at) == (BatchStatus.IN_PROGRESS, None)
    assert (batch.status, counters_of(batch)) == (BatchStatus.COMPLETED, {"succeeded": 2})


def test_many_tries_of_one_line_hold_nobody_up(pipeline: Pipeline) -> None:
    batch_id = over(pipeline, 3)
    for _ in range(3):
        last = lines_of(pipeline, batch_id)[1]
        retry_job(pipeline.database, pipeline.project_id, last.id)
        job = lines_of(pipeline, batch_id)[1]
        pipeline.publish(*pipeline.claim(job.id), status=JobStatus.FAILED, body=None, error=ERROR)
        change_batch(pipeline.database, batch_id, status=BatchStatus.COMPLETED, assembly_line=None)
    retry_batch(pipeline.database, pipeline.project_id, batch_id)

    retry_all(pipeline, chunk=1)

    assert [job.revision for job in lines_of(pipeline, batch_id)] == [0, 4, 1]


@pytest.mark.parametrize(
    "status",
    [
        BatchStatus.VALIDATING,
        BatchStatus.IN_PROGRESS,
        BatchStatus.FINALIZING,
        BatchStatus.CANCELLING,
        BatchStatus.FAILED,
    ],
)
def test_a_batch_that_is_not_over_is_not_retried(pipeline: Pipeline, status: BatchStatus) -> None:
    batch_id = over(pipeline, status=status)

    with pytest.raises(BatchNotRetryable, match=f"^Cannot retry a batch with status '{status}'.$"):
        retry_batch(pipeline.database, pipeline.project_id, batch_id)


def test_where_all_is_answered_nothing_is_retried(pipeline: Pipeline) -> None:
    batch_id = pipeline.accept(2)
    pipeline.publish(*pipeline.claim())

    with pytest.raises(BatchNotRetryable, match="cancelled or expired or failed"):
        retry_batch(pipeline.database, pipeline.project_id, batch_id)

    assert pipeline.batch(batch_id).status == BatchStatus.COMPLETED


def test_the_batch_of_another_project_does_not_exist(pipeline: Pipeline) -> None:
    batch_id = over(pipeline)

    with pytest.raises(BatchNotFound):
        retry_batch(pipeline.database, pipeline.new_project("other"), batch_id)


def test_a_lease_that_was_lost_makes_no_jobs(pipeline: Pipeline) -> None:
    batch_id = over(pipeline)
    retry_batch(pipeline.database, pipeline.project_id, batch_id)
    work, lost = claimed(pipeline)
    run_out(pipeline.database, batch_id)
    claimed(pipeline)

    with pytest.raises(WorkLost):
        retry_chunk(work, lost)

    assert {job.revision for job in lines_of(pipeline, batch_id)} == {0}
