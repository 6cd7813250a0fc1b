from __future__ import annotations

import pytest

from models.batch_store import BatchStore
from models.errors import BatchNotFound
from models.ids import new_id
from models.tables.job import Job, JobStatus
from tests.models.pipeline import Pipeline


@pytest.fixture
def store(pipeline: Pipeline) -> BatchStore:
    return BatchStore(pipeline.database)


def try_again(pipeline: Pipeline, job: Job) -> str:
    """Store a further revision of a batch's line."""
    with pipeline.database.transaction() as session:
        again = Job(
            id=new_id("job"),
            revision=job.revision + 1,
            retry_of=job.id,
            **{
                name: getattr(job, name)
                for name in ("project_id", "batch_id", "line", "endpoint", "model", "lane", "cost_tokens")
            },
            seed=job.seed,
            available_at=job.available_at,
            created_at=job.created_at,
        )
        session.add(again)
        return again.id


def test_every_line_is_there_in_order_in_any_status(pipeline: Pipeline, store: BatchStore) -> None:
    batch_id = pipeline.accept(4)
    queued, running, succeeded, failed = pipeline.jobs()
    pipeline.publish(*pipeline.claim(succeeded.id))
    pipeline.publish(*pipeline.claim(failed.id), status=JobStatus.FAILED, body=None, error='{"code":"x"}')
    pipeline.claim(running.id)

    lines, more = store.lines(pipeline.project_id, batch_id, after=None, limit=10)

    assert not more
    assert [(line.job.line, line.job.status, line.result and line.result.body) for line in lines] == [
        (0, "queued", None),
        (1, "running", None),
        (2, "succeeded", '{"text":"hi"}'),
        (3, "failed", None),
    ]
    assert lines[3].result is not None
    assert lines[3].result.error == '{"code":"x"}'
    assert lines[0].job.id == queued.id


def test_lines_come_in_pages(pipeline: Pipeline, store: BatchStore) -> None:
    batch_id = pipeline.accept(5)

    pages: list[list[int | None]] = []
    after, more = None, True
    while more:
        lines, more = store.lines(pipeline.project_id, batch_id, after=after, limit=2)
        pages.append([line.job.line for line in lines])
        after = pages[-1][-1]

    assert pages == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_of_a_line_that_was_tried_again_the_newest_is_shown(
    pipeline: Pipeline, store: BatchStore, limit: int
) -> None:
    batch_id = pipeline.accept(3)
    first, second, third = pipeline.jobs()
    newest_first = try_again(pipeline, pipeline.job(try_again(pipeline, first)))
    newest_second = try_again(pipeline, second)

    shown: list[str] = []
    after, more = None, True
    while more:
        lines, more = store.lines(pipeline.project_id, batch_id, after=after, limit=limit)
        shown += [line.job.id for line in lines]
        after = lines[-1].job.line

    assert shown == [newest_first, newest_second, third.id]


def test_a_batch_of_another_project_does_not_exist(pipeline: Pipeline, store: BatchStore) -> None:
    batch_id, other = pipeline.accept(1), pipeline.new_project("other")

    with pytest.raises(BatchNotFound):
        store.find(other, batch_id)
    with pytest.raises(BatchNotFound):
        store.lines(other, batch_id, after=None, limit=1)
    with pytest.raises(BatchNotFound):
        store.find(pipeline.project_id, "batch_none")
    assert store.find(pipeline.project_id, batch_id).total == 1
