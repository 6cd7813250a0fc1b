from __future__ import annotations

import pytest

from models.errors import JobAlreadyFinished, JobNotFound
from models.job_store import MAX_POSITION, JobFilter, JobStore
from models.tables.batch_job import BatchStatus
from models.tables.job import JobStatus, Lane
from tests.models.pipeline import Pipeline


@pytest.fixture
def store(pipeline: Pipeline) -> JobStore:
    return JobStore(pipeline.database)


def test_a_job_is_found_with_its_texts(pipeline: Pipeline, store: JobStore) -> None:
    job_id = pipeline.accept(metadata={"a": "b"})
    queued = store.find(pipeline.project_id, job_id)
    pipeline.publish(*pipeline.claim())
    finished = store.find(pipeline.project_id, job_id)

    assert (queued.job.status, queued.result, queued.window) == ("queued", None, None)
    assert queued.request is not None
    assert queued.request.metadata_text == '{"a":"b"}'
    assert finished.job.status == "succeeded"
    assert finished.result is not None
    assert finished.result.body == '{"text":"hi"}'
    assert finished.window is not None
    assert finished.window.num_jobs == 1


def test_finished_is_said_of_final_statuses_only(pipeline: Pipeline, store: JobStore) -> None:
    job_id = pipeline.accept()

    said = {}
    for status in JobStatus:
        pipeline.change(job_id, status=status)
        said[status.value] = store.is_finished(pipeline.project_id, job_id)

    assert said == {
        "queued": False,
        "running": False,
        "succeeded": True,
        "failed": True,
        "cancelled": True,
        "expired": True,
    }


def test_a_job_of_another_project_does_not_exist(pipeline: Pipeline, store: JobStore) -> None:
    job_id, other = pipeline.accept(), pipeline.new_project("other")

    with pytest.raises(JobNotFound):
        store.find(other, job_id)
    with pytest.raises(JobNotFound):
        store.is_finished(other, job_id)
    with pytest.raises(JobNotFound):
        store.cancel(other, job_id)
    with pytest.raises(JobNotFound):
        store.page(other, JobFilter(), after=job_id, limit=5)
    with pytest.raises(JobNotFound):
        store.find(pipeline.project_id, "job_none")
    assert store.page(other, JobFilter(), after=None, limit=5) == ([], False)
    assert pipeline.job(job_id).status == "queued"


def test_pages_go_from_the_newest_to_the_oldest(pipeline: Pipeline, store: JobStore) -> None:
    accepted = [pipeline.accept() for _ in range(5)]

    seen: list[list[str]] = []
    after, more = None, True
    while more:
        page, more = store.page(pipeline.project_id, JobFilter(), after=after, limit=2)
        seen.append([record.job.id for record in page])
        after = seen[-1][-1]

    newest_first = accepted[::-1]
    assert seen == [newest_first[:2], newest_first[2:4], newest_first[4:]]


def test_a_page_that_is_just_full_is_the_last(pipeline: Pipeline, store: JobStore) -> None:
    pipeline.accept(2)

    page, more = store.page(pipeline.project_id, JobFilter(), after=None, limit=2)

    assert (len(page), more) == (2, False)


def test_lists_can_be_filtered(pipeline: Pipeline, store: JobStore) -> None:
    plain = pipeline.accept()
    batch_id = pipeline.accept(2)
    failed = pipeline.accept(model="another")
    pipeline.publish(*pipeline.claim(failed), status=JobStatus.FAILED, error="{}", error_code="poison")
    lines = [job.id for job in pipeline.jobs() if job.batch_id == batch_id]

    def ids(chosen: JobFilter) -> list[str]:
        page, _ = store.page(pipeline.project_id, chosen, after=None, limit=10)
        return [record.job.id for record in page]

    assert ids(JobFilter(status=JobStatus.FAILED)) == [failed]
    assert ids(JobFilter(status=JobStatus.RUNNING)) == []
    assert ids(JobFilter(batch_id=batch_id)) == lines[::-1]
    assert ids(JobFilter(model="another")) == [failed]
    assert ids(JobFilter(error_code="poison")) == [failed]
    assert ids(JobFilter(status=JobStatus.QUEUED, model="tiny")) == [*lines[::-1], plain]


def test_a_place_counts_those_before_in_the_same_lane(pipeline: Pipeline, store: JobStore) -> None:
    pipeline.accept(cost_tokens=30)
    pipeline.accept(lane=Lane.BULK)
    pipeline.accept(model="another")
    pipeline.claim(pipeline.accept())
    pipeline.accept(cost_tokens=12, project_id=pipeline.new_project("other"))

    place = store.place(pipeline.job(pipeline.accept()))

    assert (place.num_before, place.tokens_before) == (2, 42)


def test_a_place_is_counted_up_to_its_limit(pipeline: Pipeline, store: JobStore) -> None:
    pipeline.accept(MAX_POSITION + 5, cost_tokens=1)

    place = store.place(pipeline.jobs()[-1])

    assert (place.num_before, place.tokens_before) == (MAX_POSITION, MAX_POSITION)


@pytest.mark.parametrize("status", [JobStatus.QUEUED, JobStatus.RUNNING])
def test_an_unfinished_job_is_cancelled_at_once(
    pipeline: Pipeline, store: JobStore, status: JobStatus
) -> None:
    batch_id = pipeline.accept(1)
    (job,) = pipeline.jobs()
    if status == JobStatus.RUNNING:
        pipeline.claim()

    assert store.cancel(pipeline.project_id, job.id) == status

    cancelled, batch = pipeline.job(job.id), pipeline.batch(batch_id)
    assert (cancelled.status, cancelled.error_code, cancelled.lease_until) == ("cancelled", "cancelled", None)
    assert cancelled.finished_at is not None
    assert (batch.status, batch.cancelled) == (BatchStatus.COMPLETED, 1)
    assert pipeline.counted() == pipeline.recounted()


def test_cancelling_again_changes_nothing(pipeline: Pipeline, store: JobStore) -> None:
    job_id = pipeline.accept()
    store.cancel(pipeline.project_id, job_id)
    finished_at = pipeline.job(job_id).finished_at

    assert store.cancel(pipeline.project_id, job_id) == JobStatus.CANCELLED
    assert pipeline.job(job_id).finished_at == finished_at


def test_a_finished_job_is_not_cancelled(pipeline: Pipeline, store: JobStore) -> None:
    job_id = pipeline.accept()
    pipeline.publish(*pipeline.claim())

    with pytest.raises(JobAlreadyFinished, match="succeeded"):
        store.cancel(pipeline.project_id, job_id)

    assert pipeline.job(job_id).status == "succeeded"
