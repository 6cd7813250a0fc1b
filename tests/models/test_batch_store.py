from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import insert, text

from models.batch_store import BatchStore, LineFilter
from models.errors import BatchNotFound
from models.ids import new_id
from models.tables.job import Job, JobStatus
from tests.models.batch_rows import add_batch
from tests.models.pipeline import Pipeline
from tests.models.statements import plan_of, recorded


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


def test_batches_are_listed_newest_first(pipeline: Pipeline, store: BatchStore) -> None:
    ids = [pipeline.accept(1), add_batch(pipeline.database, pipeline.project_id), pipeline.accept(1)]
    other = pipeline.new_project("other")
    foreign = add_batch(pipeline.database, other)

    first, first_has_more = store.page(pipeline.project_id, after=None, limit=2)
    second, second_has_more = store.page(pipeline.project_id, after=first[-1].id, limit=2)

    assert [batch.id for batch in first + second] == ids[::-1]
    assert (first_has_more, second_has_more) == (True, False)
    with pytest.raises(BatchNotFound):
        store.page(pipeline.project_id, after=foreign, limit=1)


def test_a_line_is_found_by_its_custom_id_and_lines_by_their_status(
    pipeline: Pipeline, store: BatchStore
) -> None:
    batch_id = pipeline.accept(4)
    pipeline.accept(1, custom_id="c1")
    jobs = pipeline.jobs()[:4]
    for number, job in enumerate(jobs):
        pipeline.change(job.id, custom_id=f"c{number}")
    pipeline.publish(*pipeline.claim(jobs[1].id), status=JobStatus.FAILED, body=None, error='{"code":"x"}')
    again = try_again(pipeline, jobs[1])
    pipeline.change(again, custom_id="c1")
    pipeline.publish(*pipeline.claim(jobs[3].id))

    def shown(**chosen: Any) -> list[str]:
        lines, more = store.lines(pipeline.project_id, batch_id, LineFilter(**chosen), after=None, limit=10)
        assert not more
        return [line.job.id for line in lines]

    assert shown(custom_id="c1") == [again]
    assert shown(custom_id="none") == []
    assert shown(status=JobStatus.QUEUED) == [jobs[0].id, again, jobs[2].id]
    assert shown(status=JobStatus.SUCCEEDED) == [jobs[3].id]
    assert shown(status=JobStatus.FAILED) == []


def test_a_batch_is_complete_up_to_its_first_line_that_has_not_ended(
    pipeline: Pipeline, store: BatchStore
) -> None:
    batch_id = pipeline.accept(4)
    jobs = pipeline.jobs()
    found = []

    for number in (1, 0, 3, 2):
        found.append(store.complete_through(pipeline.project_id, batch_id))
        pipeline.publish(*pipeline.claim(jobs[number].id))
    found.append(store.complete_through(pipeline.project_id, batch_id))

    assert found == [None, None, 1, 1, 3]
    try_again(pipeline, jobs[2])
    assert store.complete_through(pipeline.project_id, batch_id) == 1


@pytest.mark.parametrize(
    ("values", "through"),
    [
        ({"total": 0}, None),
        ({"total": 9, "split_line": 0}, None),
        ({"total": 9, "split_line": 5}, 4),
        ({"total": 9, "retry_line": 3}, 2),
        ({"total": 9}, 8),
    ],
)
def test_lines_that_are_no_jobs_yet_have_not_ended(
    pipeline: Pipeline, store: BatchStore, values: dict[str, int], through: int | None
) -> None:
    batch_id = add_batch(pipeline.database, pipeline.project_id, **values)

    assert store.complete_through(pipeline.project_id, batch_id) == through


def test_the_first_line_that_waits(pipeline: Pipeline, store: BatchStore) -> None:
    batch_id = pipeline.accept(3)
    jobs = pipeline.jobs()
    pipeline.publish(*pipeline.claim(jobs[0].id))
    pipeline.claim(jobs[1].id)
    before = pipeline.time()

    first, at = store.first_waiting(pipeline.batch(batch_id))

    assert first is not None
    assert first.id == jobs[2].id
    assert before <= at <= pipeline.time()
    pipeline.claim(jobs[2].id)
    assert store.first_waiting(pipeline.batch(batch_id))[0] is None


def test_no_poll_reads_the_lines_that_have_ended(pipeline: Pipeline, store: BatchStore) -> None:
    """However many there are, before the first that has not."""
    batch_id = pipeline.accept(1)
    (template,) = pipeline.jobs()
    columns = {c.key: getattr(template, c.key) for c in Job.__table__.columns}
    pipeline.change(template.id, line=9000)
    rows = [
        {**columns, "id": f"job_{line}", "line": line, "custom_id": f"c{line}", "status": "succeeded"}
        for line in range(3000)
    ]
    with pipeline.database.transaction() as session:
        session.execute(insert(Job), rows)
        if not pipeline.database.is_sqlite:
            # Which keeps its statistics by itself, a little later.
            session.execute(text("ANALYZE"))

    with recorded(pipeline.database) as statements:
        store.complete_through(pipeline.project_id, batch_id)
        store.first_waiting(pipeline.batch(batch_id))
        store.lines(pipeline.project_id, batch_id, LineFilter(custom_id="c7"), after=None, limit=100)

    plans = [plan_of(pipeline.database, *one) for one in statements if "FROM jobs" in one[0]]
    assert len(plans) == 3
    assert "ix_jobs_unfinished" in plans[0]
    # Here PostgreSQL may as well take another index that holds just what waits.
    assert "ix_jobs_unfinished" in plans[1] or not pipeline.database.is_sqlite
    assert "ix_jobs_custom_id" in plans[2]
    # Nor is it walked through in the order of its lines.
    assert (
        "SEARCH jobs USING INDEX sqlite_autoindex_jobs_1 (id=?)" in plans[2]
        or not pipeline.database.is_sqlite
    )
    assert not any("Seq Scan on jobs" in plan for plan in plans)
