"""Here `database` is SQLite and PostgreSQL in turn."""

from __future__ import annotations

import pytest
from sqlalchemy import insert, text, update

from models.backoff import Backoff
from models.fleet import Fleet, WorkerCard
from models.ids import new_id
from models.rescue import give_back, give_back_crashed
from models.tables.job import Job
from models.tables.worker import Window, Worker
from models.watchdog import Pulse, Watchdog
from tests.models.pipeline import MODEL, Pipeline
from tests.models.statements import plan_of, recorded


def look(pipeline: Pipeline) -> Pulse:
    (pulse,) = Watchdog(pipeline.database, models=[MODEL], stuck_seconds=60.0).look()
    return pulse


def wait_for(pipeline: Pipeline, seconds: float) -> str:
    """Accept a job that could have been taken so long ago."""
    job_id = pipeline.accept()
    pipeline.change(job_id, available_at=pipeline.time(seconds_from_now=-seconds))
    return job_id


def claimed(pipeline: Pipeline, seconds_ago: float, *, model: str = MODEL) -> None:
    """A window was taken so long ago."""
    at = pipeline.time(seconds_from_now=-seconds_ago)
    with pipeline.database.transaction() as session:
        times = {"opened_at": at, "closed_at": at}
        session.add(
            Window(
                id=new_id("window"),
                worker_id="w",
                model=model,
                reason="idle",
                num_jobs=1,
                num_tokens=1,
                **times,
            )
        )


def working(
    pipeline: Pipeline, *, step_seconds_ago: float, beat_seconds_ago: float = 0.0, model: str = MODEL
) -> None:
    """There is a worker that was seen computing so long ago."""
    card = WorkerCard(new_id("worker"), "host", 1, model, max_model_len=512, device="cpu", version="0")
    Fleet(pipeline.database).join(card)
    with pipeline.database.transaction() as session:
        worker = session.get_one(Worker, card.id)
        worker.progress_at = pipeline.time(seconds_from_now=-step_seconds_ago)
        worker.heartbeat_at = pipeline.time(seconds_from_now=-beat_seconds_ago)


def test_where_nothing_waits_nothing_is_stuck(pipeline: Pipeline) -> None:
    assert look(pipeline) == Pulse(MODEL, 0, 0.0, 0.0, is_stuck=False)


def test_ages_are_those_of_the_oldest(pipeline: Pipeline) -> None:
    wait_for(pipeline, 100)
    wait_for(pipeline, 1000)
    for seconds in (50, 500):
        job_id = pipeline.accept()
        pipeline.claim(job_id)
        pipeline.change(job_id, started_at=pipeline.time(seconds_from_now=-seconds))
    finished = pipeline.accept()
    pipeline.publish(*pipeline.claim(finished))
    pipeline.change(finished, started_at=pipeline.time(seconds_from_now=-9000))

    pulse = look(pipeline)

    assert 1000 <= pulse.oldest_queued_age_seconds < 1400
    assert 500 <= pulse.oldest_running_age_seconds < 900


@pytest.mark.parametrize(
    ("waits", "claimed_ago", "step_ago", "is_stuck"),
    [
        pytest.param(20, None, None, False, id="waits for a moment only"),
        pytest.param(300, None, None, True, id="nobody ever came"),
        pytest.param(300, 10, None, False, id="others are taken"),
        pytest.param(300, 300, None, True, id="others were taken long ago"),
        pytest.param(300, 300, 10, False, id="the fleet is full of long answers"),
        pytest.param(300, 300, 300, True, id="the fleet is idle"),
        pytest.param(-300, 400, None, False, id="backs off"),
    ],
)
def test_stuck_is_what_waits_while_nothing_is_taken_or_computed(
    pipeline: Pipeline, waits: float, claimed_ago: float | None, step_ago: float | None, is_stuck: bool
) -> None:
    wait_for(pipeline, waits)
    if claimed_ago is not None:
        claimed(pipeline, claimed_ago)
    if step_ago is not None:
        working(pipeline, step_seconds_ago=step_ago)

    assert look(pipeline).is_stuck is is_stuck


def test_a_worker_that_is_gone_computes_nothing(pipeline: Pipeline) -> None:
    wait_for(pipeline, 300)
    working(pipeline, step_seconds_ago=45, beat_seconds_ago=45)

    pulse = look(pipeline)

    assert (pulse.num_workers, pulse.is_stuck) == (0, True)


def test_another_model_helps_nobody(pipeline: Pipeline) -> None:
    wait_for(pipeline, 300)
    working(pipeline, step_seconds_ago=0, model="other")
    claimed(pipeline, 0, model="other")

    tiny, other = Watchdog(pipeline.database, models=[MODEL, "other"], stuck_seconds=60.0).look()

    assert (tiny.num_workers, tiny.is_stuck) == (0, True)
    assert other == Pulse("other", 1, 0.0, 0.0, is_stuck=False)


def test_a_claim_is_seen(pipeline: Pipeline) -> None:
    wait_for(pipeline, 300)
    pipeline.claim(pipeline.accept())

    assert look(pipeline).is_stuck is False


def test_a_suspect_that_nobody_takes_is_stuck_too(pipeline: Pipeline) -> None:
    wait_for(pipeline, 300)
    pipeline.change(pipeline.jobs()[0].id, isolation=1)

    assert look(pipeline).is_stuck is True


@pytest.mark.parametrize("end", ["rescue", "give_back", "give_back_crashed"])
def test_a_job_that_comes_back_waits_from_then_on(pipeline: Pipeline, end: str) -> None:
    """While it ran it did not wait, however long that was."""
    job_id = wait_for(pipeline, 9000)
    wait_for(pipeline, -9000)
    (job,) = pipeline.claim(job_id, lease_seconds=-1)
    with pipeline.database.transaction() as session:
        session.execute(update(Window).values(closed_at=pipeline.time(seconds_from_now=-9000)))

    if end == "rescue":
        assert pipeline.rescue() == [job_id]
    elif end == "give_back":
        give_back(pipeline.database, [job.held])
    else:
        give_back_crashed(pipeline.database, [job.held], backoff=Backoff(0))

    pulse = look(pipeline)
    assert pipeline.job(job_id).status == "queued"
    assert pulse.oldest_queued_age_seconds < 60
    assert pulse.is_stuck is False


def test_no_look_reads_the_table_of_jobs(pipeline: Pipeline) -> None:
    """However many there are, finished, waiting or not yet due."""
    running = pipeline.accept()
    pipeline.claim(running)
    template = pipeline.job(pipeline.accept())
    columns = {c.key: getattr(template, c.key) for c in Job.__table__.columns if c.key != "id"}
    later = pipeline.time(seconds_from_now=9000)
    rows = [{**columns, "id": f"job_done{i}", "status": "succeeded"} for i in range(3000)]
    rows += [{**columns, "id": f"job_late{i}", "available_at": later} for i in range(3000)]
    with pipeline.database.transaction() as session:
        session.execute(insert(Job), rows)
        if not pipeline.database.is_sqlite:
            # Which keeps its statistics by itself, a little later.
            session.execute(text("ANALYZE"))

    with recorded(pipeline.database) as statements:
        look(pipeline)

    about_jobs = [one for one in statements if "FROM jobs" in one[0]]
    plans = [plan_of(pipeline.database, *one) for one in about_jobs]
    used = {name for name in ("ix_jobs_lease", "ix_jobs_available") if any(name in plan for plan in plans)}
    assert len(plans) == 2
    assert used == {"ix_jobs_lease", "ix_jobs_available"}, plans
    assert not any("Seq Scan on jobs" in plan for plan in plans)
    (windows,) = [one for one in statements if "FROM windows" in one[0]]
    if pipeline.database.is_sqlite:
        assert "ix_windows_model" in plan_of(pipeline.database, *windows)


def test_what_is_held_does_not_wait(pipeline: Pipeline) -> None:
    pipeline.change(wait_for(pipeline, 300), held=1)

    assert look(pipeline) == Pulse(MODEL, 0, 0.0, 0.0, is_stuck=False)
