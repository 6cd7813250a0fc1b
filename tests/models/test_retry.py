from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from models.batch_store import BatchStore
from models.errors import JobAlreadyRetried, JobNotFound, JobNotRetryable
from models.job_store import JobFilter, JobStore
from models.retry import retry_job
from models.tables.batch_job import BatchStatus
from models.tables.job import JobRequest, JobStatus
from tests.models.batch_rows import change_batch, refuse_line, split_batch
from tests.models.pipeline import Pipeline


def fail_all(pipeline: Pipeline) -> None:
    failed = {"status": JobStatus.FAILED, "body": None, "error_code": "poison"}
    pipeline.publish(*pipeline.claim(), error='{"code":"poison","message":"m","param":null}', **failed)


def test_a_retry_is_a_new_job_that_asks_the_same(pipeline: Pipeline) -> None:
    old_id = pipeline.accept(seed=7, custom_id="c", metadata={"k": "v"})
    fail_all(pipeline)

    new_id = retry_job(pipeline.database, pipeline.project_id, old_id)

    old, new = pipeline.job(old_id), pipeline.job(new_id)
    assert (old.status, old.error_code) == ("failed", "poison")
    assert (new.status, new.retry_of, new.revision, new.attempt) == ("queued", old_id, 1, 0)
    assert (new.seed, new.custom_id, new.endpoint, new.cost_tokens) == (7, "c", old.endpoint, 100)
    with pipeline.database.reading() as session:
        request, before = session.get_one(JobRequest, new_id), session.get_one(JobRequest, old_id)
    assert (request.body, request.metadata_text) == (before.body, '{"k":"v"}')
    assert pipeline.counted() == pipeline.recounted()
    assert pipeline.dispatcher().dispatch() == 1
    assert pipeline.publish(*pipeline.claim()) == {new_id}


def test_a_batch_counts_the_newest_of_each_line(pipeline: Pipeline) -> None:
    batch_id = pipeline.accept(3)
    first, second, third = (job.id for job in pipeline.jobs())
    pipeline.publish(*pipeline.claim(first))
    pipeline.publish(*pipeline.claim(second), status=JobStatus.FAILED, body=None, error="{}")
    JobStore(pipeline.database).cancel(pipeline.project_id, third)
    assert pipeline.batch(batch_id).status == BatchStatus.COMPLETED

    again = retry_job(pipeline.database, pipeline.project_id, second)

    batch = pipeline.batch(batch_id)
    assert (batch.status, batch.completed_at) == (BatchStatus.IN_PROGRESS, None)
    assert (batch.total, batch.queued, batch.succeeded, batch.failed, batch.cancelled) == (3, 1, 1, 0, 1)
    lines, _ = BatchStore(pipeline.database).lines(pipeline.project_id, batch_id, after=None, limit=10)
    assert [(line.job.id, line.job.line) for line in lines] == [(first, 0), (again, 1), (third, 2)]

    pipeline.publish(*pipeline.claim(again))

    batch = pipeline.batch(batch_id)
    assert (batch.status, batch.succeeded, batch.failed) == (BatchStatus.COMPLETED, 2, 0)
    assert pipeline.counted() == pipeline.recounted()


def test_a_job_is_retried_once_and_its_successor_once_more(pipeline: Pipeline) -> None:
    pipeline.accept(1)
    (old,) = pipeline.jobs()
    fail_all(pipeline)
    new_id = retry_job(pipeline.database, pipeline.project_id, old.id)

    with pytest.raises(JobAlreadyRetried, match=new_id):
        retry_job(pipeline.database, pipeline.project_id, old.id)
    fail_all(pipeline)
    newest = retry_job(pipeline.database, pipeline.project_id, new_id)

    assert (pipeline.job(newest).revision, pipeline.job(newest).line) == (2, 0)
    assert pipeline.counted() == pipeline.recounted()


def test_of_retries_at_the_same_moment_one_wins(pipeline: Pipeline) -> None:
    old_id = pipeline.accept()
    fail_all(pipeline)
    together = threading.Barrier(3)

    def retry(_: int) -> str | None:
        together.wait()
        try:
            return retry_job(pipeline.database, pipeline.project_id, old_id)
        except JobAlreadyRetried:
            return None

    with ThreadPoolExecutor(3) as pool:
        made = [new_id for new_id in pool.map(retry, range(3)) if new_id is not None]

    assert made == [job.id for job in pipeline.jobs() if job.retry_of == old_id]
    assert len(made) == 1


@pytest.mark.parametrize("status", [JobStatus.QUEUED, JobStatus.RUNNING, JobStatus.SUCCEEDED])
def test_what_has_not_ended_without_an_answer_is_not_retried(pipeline: Pipeline, status: JobStatus) -> None:
    job_id = pipeline.accept()
    pipeline.change(job_id, status=status)

    with pytest.raises(JobNotRetryable, match=status):
        retry_job(pipeline.database, pipeline.project_id, job_id)


def test_a_line_of_a_batch_whose_files_are_being_written_is_not_retried(pipeline: Pipeline) -> None:
    batch_id = pipeline.accept(1)
    fail_all(pipeline)
    with pipeline.database.transaction() as session:
        batch = session.merge(pipeline.batch(batch_id))
        batch.status = BatchStatus.FINALIZING

    with pytest.raises(JobNotRetryable, match="finalizing"):
        retry_job(pipeline.database, pipeline.project_id, pipeline.jobs()[0].id)


def test_a_deadline_that_has_passed_is_left_out(pipeline: Pipeline) -> None:
    late = pipeline.accept(deadline_at=pipeline.time(seconds_from_now=-1))
    in_time = pipeline.accept(deadline_at=pipeline.time(seconds_from_now=500))
    pipeline.dispatcher().expire()
    JobStore(pipeline.database).cancel(pipeline.project_id, in_time)

    retried = [retry_job(pipeline.database, pipeline.project_id, job_id) for job_id in (late, in_time)]

    deadlines = [pipeline.job(job_id).deadline_at for job_id in retried]
    assert deadlines == [None, pipeline.job(in_time).deadline_at]


def test_the_job_of_another_project_is_not_there(pipeline: Pipeline) -> None:
    job_id = pipeline.accept()
    fail_all(pipeline)

    for project_id, id in ((pipeline.new_project("other"), job_id), (pipeline.project_id, "job_unknown")):
        with pytest.raises(JobNotFound):
            retry_job(pipeline.database, project_id, id)


def test_failed_jobs_are_listed_by_their_code(pipeline: Pipeline) -> None:
    pipeline.accept(2)
    bad, other = pipeline.jobs()
    pipeline.publish(*pipeline.claim(bad.id), status=JobStatus.FAILED, body=None, error_code="poison")
    pipeline.publish(*pipeline.claim(other.id), status=JobStatus.FAILED, body=None, error_code="x")

    chosen = JobFilter(status=JobStatus.FAILED, error_code="poison")
    records, _ = JobStore(pipeline.database).page(pipeline.project_id, chosen, after=None, limit=10)

    assert [record.job.id for record in records] == [bad.id]


def test_a_retry_in_a_paused_batch_is_held_with_it(pipeline: Pipeline) -> None:
    batch_id = split_batch(pipeline, 2)
    first, _ = (job.id for job in pipeline.jobs())
    failed = {"status": JobStatus.FAILED, "body": None, "error": "{}", "error_code": "poison"}
    pipeline.publish(*pipeline.claim(first), **failed)
    end = pipeline.time(seconds_from_now=60)
    change_batch(pipeline.database, batch_id, paused_at=pipeline.time(), expires_at=end, lane="standard")

    new = pipeline.job(retry_job(pipeline.database, pipeline.project_id, first))

    assert (new.held, new.lane, new.deadline_at) == (1, "standard", end)
    assert pipeline.batch(batch_id).paused_at is not None
    assert pipeline.counted() == pipeline.recounted()


def test_a_line_that_holds_no_valid_request_is_not_retried(pipeline: Pipeline) -> None:
    split_batch(pipeline, 2)
    refused = pipeline.jobs()[0].id
    refuse_line(pipeline, refused)

    with pytest.raises(JobNotRetryable, match="not valid"):
        retry_job(pipeline.database, pipeline.project_id, refused)
