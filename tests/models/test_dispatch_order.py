"""Which jobs of one project and lane are published first, and that none of them waits for ever."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import insert, text

from models.dispatch_order import PATIENCE
from models.tables.job import Job, Lane
from tests.models.pipeline import MODEL, Pipeline
from tests.models.statements import plan_of, recorded

#: More rows than a database would rather read whole.
_NUM_LINES = 5000


def _published(pipeline: Pipeline, lane: Lane = Lane.STANDARD) -> list[str]:
    pipeline.dispatcher().dispatch()
    return pipeline.delivered(lane)


def test_of_one_deadline_those_that_begin_alike_go_side_by_side(pipeline: Pipeline) -> None:
    pipeline.accept(5, deadline_at=pipeline.time(seconds_from_now=900))
    jobs = [job.id for job in pipeline.jobs()]
    for job_id, key in zip(
        jobs, ["0000000000", "0000000001", "0000000000", "0000000003", "0000000001"], strict=True
    ):
        pipeline.change(job_id, prefix_key=key)

    assert _published(pipeline) == [jobs[0], jobs[2], jobs[1], jobs[4], jobs[3]]


def test_a_nearer_deadline_goes_before_those_that_begin_alike(pipeline: Pipeline) -> None:
    alike = [pipeline.accept(deadline_at=pipeline.time(seconds_from_now=900)) for _ in range(2)]
    near = pipeline.accept(deadline_at=pipeline.time(seconds_from_now=60))
    for job_id in alike:
        pipeline.change(job_id, prefix_key="0000000000")
    pipeline.change(near, prefix_key="0000000009")

    assert _published(pipeline) == [near, *alike]


@pytest.mark.parametrize("lane", Lane)
def test_a_job_without_a_deadline_has_its_turn_although_deadlines_never_cease(
    pipeline: Pipeline, lane: Lane
) -> None:
    waits = pipeline.accept(lane=lane)
    dispatcher = pipeline.dispatcher(depth=1)
    patience = PATIENCE[lane]
    served: list[str] = []

    for part in range(12):
        # Time goes by, a tenth of its patience at a time, and each time there is one that is due soon.
        pipeline.change(waits, created_at=pipeline.time() - part * patience / 10)
        pipeline.accept(lane=lane, deadline_at=pipeline.time() + patience / 20)
        dispatcher.dispatch()
        served += pipeline.delivered(lane)

    assert len(served) == 12
    assert served.index(waits) == 10


def test_one_that_is_tried_again_after_its_deadline_has_its_turn_too(pipeline: Pipeline) -> None:
    """A retry keeps its place among those that begin alike, and has no deadline any more."""
    retried, plain = pipeline.accept(), pipeline.accept()
    pipeline.change(retried, prefix_key="0000000007")
    pipeline.change(plain, created_at=pipeline.time() + timedelta(seconds=1))

    assert _published(pipeline) == [retried, plain]


def test_a_day_is_what_a_batch_has_by_default_so_bulk_without_a_deadline_goes_by_age(
    pipeline: Pipeline,
) -> None:
    older, newer = (pipeline.accept(lane=Lane.BULK) for _ in range(2))
    day = timedelta(hours=24)
    pipeline.change(newer, created_at=pipeline.time() + timedelta(seconds=60))
    lines = [
        pipeline.accept(lane=Lane.BULK, deadline_at=pipeline.time() + day + timedelta(seconds=seconds))
        for seconds in (30, 90)
    ]

    assert _published(pipeline, Lane.BULK) == [older, lines[0], newer, lines[1]]


@pytest.mark.parametrize("kind", ["lines of a batch", "list without deadline", "retried lines"])
def test_who_looks_for_the_next_reads_only_so_many_by_the_index(pipeline: Pipeline, kind: str) -> None:
    template = pipeline.job(pipeline.accept())
    columns = {c.key: getattr(template, c.key) for c in Job.__table__.columns if c.key != "id"}
    if kind != "list without deadline":
        columns["prefix_key"] = "0000000000"
    if kind == "lines of a batch":
        columns["deadline_at"] = pipeline.time(seconds_from_now=86400)
    with pipeline.database.transaction() as session:
        session.execute(insert(Job), [{**columns, "id": f"job_late{i}"} for i in range(_NUM_LINES)])
        if not pipeline.database.is_sqlite:
            # Which keeps its statistics by itself, a little later.
            session.execute(text("ANALYZE"))

    with recorded(pipeline.database) as statements:
        assert pipeline.dispatcher(depth=10).dispatch() == 10

    # Those that look, as the ones that lock rows do in PostgreSQL; `UPDATE` is of the chosen ones.
    looks = [one for one in statements if one[0].startswith("SELECT jobs.id") and "LIMIT" in one[0]]
    plans = [plan_of(pipeline.database, *one) for one in looks]
    assert len(plans) == 3
    for plan in plans:
        assert "ix_jobs_undispatched" in plan
        assert "Sort" not in plan
        assert "TEMP B-TREE" not in plan
    assert pipeline.queue.depth(MODEL, Lane.STANDARD) == 10
