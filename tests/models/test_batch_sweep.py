"""From the row of a batch to its jobs."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import func, insert, select, text

from models.batch_change import cancel_batch, pause_batch, resume_batch, update_batch
from models.batch_sweep import sweep_chunk
from models.batch_work import BatchWork, WorkLease, WorkLost
from models.job_store import JobStore
from models.rescue import give_back
from models.tables.batch_job import BatchStatus
from models.tables.job import Job, JobStatus, Lane
from tests.models.batch_rows import change_batch, counters_of, lines_of, split_batch
from tests.models.pipeline import Pipeline
from tests.models.statements import plan_of, recorded


@pytest.fixture
def work(pipeline: Pipeline) -> BatchWork:
    return BatchWork(pipeline.database)


def claimed(work: BatchWork) -> WorkLease:
    lease = work.claim()
    assert lease is not None
    return lease


def sweep(pipeline: Pipeline, *, chunk: int = 2) -> list[str]:
    """Sweep all there is to sweep, and return the running jobs that were cancelled."""
    work = BatchWork(pipeline.database)
    lease = claimed(work)
    told: list[str] = []
    while pipeline.batch(lease.batch_id).sweep_line is not None:
        told += sweep_chunk(work, lease, chunk=chunk)
    work.release(lease)
    return told


def test_a_cancel_ends_what_waits_and_what_runs_and_keeps_what_has_ended(pipeline: Pipeline) -> None:
    batch_id = split_batch(pipeline, 5)
    done, running, *waiting = (job.id for job in pipeline.jobs())
    pipeline.publish(*pipeline.claim(done))
    (held,) = pipeline.claim(running)
    cancel_batch(pipeline.database, pipeline.project_id, batch_id)

    told = sweep(pipeline)

    assert told == [running]
    assert [job.status for job in lines_of(pipeline, batch_id)] == ["succeeded", *["cancelled"] * 4]
    assert {job.error_code for job in pipeline.jobs(running, *waiting)} == {"cancelled"}
    batch = pipeline.batch(batch_id)
    assert (batch.status, batch.assembly_line) == (BatchStatus.CANCELLING, 0)
    assert counters_of(batch) == {"succeeded": 1, "cancelled": 4}
    assert pipeline.counted() == pipeline.recounted()
    assert pipeline.publish(held) == set()


def test_a_cancelled_list_is_over_with_its_last_line(pipeline: Pipeline) -> None:
    batch_id = pipeline.accept(3)
    cancel_batch(pipeline.database, pipeline.project_id, batch_id)

    sweep(pipeline)

    batch = pipeline.batch(batch_id)
    assert (batch.status, counters_of(batch)) == (BatchStatus.CANCELLED, {"cancelled": 3})
    assert batch.cancelled_at is not None


def test_a_paused_batch_is_neither_dispatched_nor_claimed(pipeline: Pipeline) -> None:
    batch_id = split_batch(pipeline, 4)
    pipeline.dispatcher(depth=2).dispatch()
    entries = pipeline.consumer().read({Lane.BULK: 10})
    pause_batch(pipeline.database, pipeline.project_id, batch_id)

    sweep(pipeline)

    assert [job.held for job in lines_of(pipeline, batch_id)] == [1, 1, 1, 1]
    assert len(entries) == 2
    assert pipeline.claim(*(entry.ticket.job_id for entry in entries)) == []
    assert pipeline.dispatcher().dispatch() == 0
    assert pipeline.dispatcher().reconcile() == 0
    assert pipeline.batch(batch_id).status == BatchStatus.IN_PROGRESS

    resume_batch(pipeline.database, pipeline.project_id, batch_id)
    sweep(pipeline)

    assert [job.held for job in pipeline.jobs()] == [0, 0, 0, 0]
    assert pipeline.dispatcher().dispatch() == 4
    assert len(pipeline.claim()) == 4


def test_a_job_that_backs_off_does_so_after_the_pause_too(pipeline: Pipeline) -> None:
    batch_id = split_batch(pipeline, 1)
    later = pipeline.time(seconds_from_now=60)
    pipeline.change(pipeline.jobs()[0].id, available_at=later)

    for change in (pause_batch, resume_batch):
        change(pipeline.database, pipeline.project_id, batch_id)
        sweep(pipeline)

    (job,) = pipeline.jobs()
    assert (job.available_at, job.held) == (later, 0)


def test_what_runs_when_its_batch_is_paused_is_held_if_it_comes_back(pipeline: Pipeline) -> None:
    batch_id = split_batch(pipeline, 2)
    first, second = (job.id for job in pipeline.jobs())
    running = pipeline.claim(first, second)
    pause_batch(pipeline.database, pipeline.project_id, batch_id)
    sweep(pipeline)

    pipeline.publish(running[0])
    give_back(pipeline.database, [running[1].held])

    assert pipeline.job(first).status == JobStatus.SUCCEEDED
    assert (pipeline.job(second).status, pipeline.job(second).held) == (JobStatus.QUEUED, 1)
    assert pipeline.dispatcher().dispatch() == 0


def test_a_held_suspect_waits_too(pipeline: Pipeline) -> None:
    batch_id = split_batch(pipeline, 1)
    pipeline.change(pipeline.jobs()[0].id, isolation=1)
    pause_batch(pipeline.database, pipeline.project_id, batch_id)

    sweep(pipeline)

    assert pipeline.claim_suspects() == []


def test_another_lane_takes_the_counters_along(pipeline: Pipeline) -> None:
    batch_id = split_batch(pipeline, 4)
    done, running, *_ = (job.id for job in pipeline.jobs())
    pipeline.dispatcher(depth=3).dispatch()
    pipeline.publish(*pipeline.claim(done))
    pipeline.claim(running)
    update_batch(pipeline.database, pipeline.project_id, batch_id, lane=Lane.INTERACTIVE)

    sweep(pipeline)

    assert [job.lane for job in lines_of(pipeline, batch_id)] == ["bulk", *["interactive"] * 3]
    project = pipeline.project_id
    assert pipeline.counted() == {
        (project, "bulk", "succeeded"): 1,
        (project, "interactive", "running"): 1,
        (project, "interactive", "queued"): 2,
    }
    assert pipeline.counted() == pipeline.recounted()
    # What had an entry in the other lane gets one here.
    assert pipeline.dispatcher().dispatch() == 2
    assert len(pipeline.delivered(Lane.INTERACTIVE)) == 2


def test_another_end_is_that_of_every_line_that_has_not_ended(pipeline: Pipeline) -> None:
    batch_id = split_batch(pipeline, 3)
    done, running, waiting = (job.id for job in pipeline.jobs())
    pipeline.publish(*pipeline.claim(done))
    pipeline.claim(running)
    end = pipeline.time(seconds_from_now=60)
    update_batch(pipeline.database, pipeline.project_id, batch_id, expires_at=end)

    sweep(pipeline)

    assert [job.deadline_at for job in pipeline.jobs(done, running, waiting)] == [None, end, end]


def test_the_requests_of_a_list_keep_their_deadlines(pipeline: Pipeline) -> None:
    own = pipeline.time(seconds_from_now=600)
    batch_id = pipeline.accept(2, deadline_at=own)
    update_batch(pipeline.database, pipeline.project_id, batch_id, lane=Lane.BULK)

    sweep(pipeline)

    assert {(job.lane, job.deadline_at) for job in pipeline.jobs()} == {("bulk", own)}
    assert pipeline.counted() == pipeline.recounted()


def test_a_change_in_the_middle_of_a_sweep_begins_it_anew(pipeline: Pipeline, work: BatchWork) -> None:
    batch_id = split_batch(pipeline, 4)
    pause_batch(pipeline.database, pipeline.project_id, batch_id)
    lease = claimed(work)
    sweep_chunk(work, lease, chunk=2)
    assert [job.held for job in lines_of(pipeline, batch_id)] == [1, 1, 0, 0]
    assert pipeline.batch(batch_id).sweep_line == 2

    resume_batch(pipeline.database, pipeline.project_id, batch_id)
    for _ in range(3):
        sweep_chunk(work, lease, chunk=2)

    assert [job.held for job in lines_of(pipeline, batch_id)] == [0, 0, 0, 0]
    assert pipeline.batch(batch_id).sweep_line is None


def test_a_lease_that_was_lost_changes_nothing(pipeline: Pipeline, work: BatchWork) -> None:
    batch_id = split_batch(pipeline, 2)
    cancel_batch(pipeline.database, pipeline.project_id, batch_id)
    lost = claimed(work)
    change_batch(pipeline.database, batch_id, work_until=pipeline.time() - timedelta(seconds=1))
    claimed(work)

    with pytest.raises(WorkLost):
        sweep_chunk(work, lost)

    assert counters_of(pipeline.batch(batch_id)) == {"queued": 2}
    assert pipeline.counted() == pipeline.recounted()


def test_lines_without_gaps_or_with_them_are_all_swept(pipeline: Pipeline) -> None:
    """A list may leave lines out, so that its last one is beyond its length."""
    batch_id = split_batch(pipeline, 3)
    for job in pipeline.jobs():
        pipeline.change(job.id, line=(job.line or 0) * 10)
    pause_batch(pipeline.database, pipeline.project_id, batch_id)

    sweep(pipeline, chunk=1)

    with pipeline.database.reading() as session:
        assert session.scalar(select(func.sum(Job.held))) == 3


def test_held_jobs_stand_before_nobody(pipeline: Pipeline) -> None:
    batch_id = split_batch(pipeline, 3)
    later = pipeline.accept(lane=Lane.BULK)
    pause_batch(pipeline.database, pipeline.project_id, batch_id)

    sweep(pipeline)

    assert JobStore(pipeline.database).place(pipeline.job(later)).num_before == 0
    # There is room for it in Redis, at once, however many are held.
    assert pipeline.job(pipeline.accept(depth=10, lane=Lane.BULK)).dispatched_at is None
    pipeline.dispatcher().dispatch()
    assert pipeline.job(pipeline.accept(depth=10, lane=Lane.BULK)).dispatched_at is not None


def test_a_sweep_reads_no_line_that_has_ended(pipeline: Pipeline, work: BatchWork) -> None:
    batch_id = split_batch(pipeline, 1)
    template = pipeline.jobs()[0]
    columns = {c.key: getattr(template, c.key) for c in Job.__table__.columns if c.key not in ("id", "line")}
    ended = [{**columns, "id": f"job_done{i}", "line": i + 1, "status": "succeeded"} for i in range(3000)]
    with pipeline.database.transaction() as session:
        session.execute(insert(Job), ended)
        if not pipeline.database.is_sqlite:
            # Which keeps its statistics by itself, a little later.
            session.execute(text("ANALYZE"))
    pause_batch(pipeline.database, pipeline.project_id, batch_id)

    with recorded(pipeline.database) as statements:
        sweep_chunk(work, claimed(work))

    looks = [one for one in statements if "IN ('queued', 'running')" in one[0]]
    assert len(looks) == 2
    for look in looks:
        assert "ix_jobs_unfinished" in plan_of(pipeline.database, *look)
