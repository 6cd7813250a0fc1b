from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import insert, text

from models.tables.job import Job, Lane
from tests.models.pipeline import MODEL, Pipeline
from tests.models.statements import plan_of, recorded
from tests.services.redis_server import ValkeyServer


def test_a_stream_is_filled_to_its_depth_and_no_further(pipeline: Pipeline) -> None:
    pipeline.accept(10)
    dispatcher = pipeline.dispatcher(depth=4)

    published = [dispatcher.dispatch(), dispatcher.dispatch()]

    assert published == [4, 0]
    assert pipeline.queue.depth(MODEL, Lane.STANDARD) == 4
    pipeline.delivered()
    assert dispatcher.dispatch() == 4


def test_every_lane_has_a_depth_of_its_own(pipeline: Pipeline) -> None:
    for lane in Lane:
        pipeline.accept(3, lane=lane)

    assert pipeline.dispatcher(depth=2).dispatch() == 6
    assert [pipeline.queue.depth(MODEL, lane) for lane in Lane] == [2, 2, 2]


def test_the_nearest_deadline_goes_first_then_the_oldest(pipeline: Pipeline) -> None:
    plain, far, near, last = [pipeline.accept() for _ in range(4)]
    pipeline.change(far, deadline_at=pipeline.time(seconds_from_now=900))
    pipeline.change(near, deadline_at=pipeline.time(seconds_from_now=60))

    pipeline.dispatcher().dispatch()

    assert pipeline.delivered() == [near, far, plain, last]


def test_an_entry_carries_what_a_window_needs(pipeline: Pipeline) -> None:
    deadline_at = pipeline.time(seconds_from_now=60)
    job_id = pipeline.accept(cost_tokens=77, deadline_at=deadline_at)
    pipeline.dispatcher().dispatch()

    (entry,) = pipeline.consumer().read({Lane.STANDARD: 5})

    assert (entry.ticket.job_id, entry.ticket.cost_tokens) == (job_id, 77)
    assert entry.ticket.deadline_at is not None
    assert abs((entry.ticket.deadline_at - deadline_at).total_seconds()) < 0.001


def test_a_job_that_backs_off_is_left_alone(pipeline: Pipeline) -> None:
    later, ready = pipeline.accept(), pipeline.accept()
    pipeline.change(later, available_at=pipeline.time(seconds_from_now=60))

    assert pipeline.dispatcher().dispatch() == 1
    assert pipeline.delivered() == [ready]


def test_another_model_is_left_alone(pipeline: Pipeline) -> None:
    pipeline.accept(model="another")

    assert pipeline.dispatcher().dispatch() == 0


def _owners(pipeline: Pipeline, job_ids: list[str]) -> str:
    jobs = {job.id: job for job in pipeline.jobs()}
    return "".join("a" if jobs[job_id].project_id == pipeline.project_id else "b" for job_id in job_ids)


def test_a_large_project_does_not_bury_a_small_one(pipeline: Pipeline) -> None:
    pipeline.accept(40, cost_tokens=1024)
    pipeline.accept(4, cost_tokens=1024, project_id=pipeline.new_project("small"))

    pipeline.dispatcher(depth=10).dispatch()

    assert Counter(_owners(pipeline, pipeline.delivered())) == {"a": 6, "b": 4}


def test_shares_are_measured_in_tokens_not_in_jobs(pipeline: Pipeline) -> None:
    pipeline.accept(20, cost_tokens=2048)
    pipeline.accept(40, cost_tokens=512, project_id=pipeline.new_project("small jobs"))

    pipeline.dispatcher(depth=10).dispatch()

    assert Counter(_owners(pipeline, pipeline.delivered())) == {"a": 2, "b": 8}


def test_shares_are_fair_when_places_come_free_one_by_one(pipeline: Pipeline) -> None:
    pipeline.accept(30, cost_tokens=10)
    pipeline.accept(30, cost_tokens=10, project_id=pipeline.new_project("other"))
    dispatcher = pipeline.dispatcher(depth=4)
    consumer = pipeline.consumer()
    dispatcher.dispatch()

    taken: list[str] = []
    for _ in range(20):
        entries = consumer.read({Lane.STANDARD: 1})
        consumer.acknowledge(entries)
        taken += [entry.ticket.job_id for entry in entries]
        dispatcher.dispatch()

    shares = Counter(_owners(pipeline, taken))
    assert len(taken) == 20
    assert abs(shares["a"] - shares["b"]) <= 4


def test_dispatchers_at_the_same_moment_publish_each_job_once(pipeline: Pipeline) -> None:
    num_threads, num_jobs = 4, 120
    pipeline.accept(num_jobs)
    together = threading.Barrier(num_threads)
    dispatchers = [pipeline.dispatcher(depth=10 * num_jobs) for _ in range(num_threads)]

    def dispatch(number: int) -> int:
        together.wait()
        return dispatchers[number].dispatch()

    with ThreadPoolExecutor(num_threads) as pool:
        published = list(pool.map(dispatch, range(num_threads)))

    # A dispatcher skips what another one holds, so one more look may be needed, but never two entries.
    rest = pipeline.dispatcher(depth=10 * num_jobs).dispatch()
    assert sum(published) + rest == num_jobs
    assert sorted(pipeline.delivered()) == [job.id for job in pipeline.jobs()]


def test_after_redis_came_back_empty_everything_is_published_again(
    pipeline: Pipeline, valkey_server: ValkeyServer
) -> None:
    pipeline.accept(5)
    running, cancelled = (job.id for job in pipeline.jobs()[:2])
    dispatcher = pipeline.dispatcher()
    dispatcher.dispatch()
    pipeline.claim(running)
    pipeline.change(cancelled, status="cancelled")
    assert dispatcher.dispatch() == 0

    valkey_server.flush()

    assert dispatcher.dispatch() == 3
    assert pipeline.delivered() == [job.id for job in pipeline.jobs()[2:]]
    assert dispatcher.dispatch() == 0


def test_entries_that_are_missing_are_found_and_only_those(pipeline: Pipeline) -> None:
    pipeline.accept(4)
    dispatcher = pipeline.dispatcher()
    dispatcher.dispatch()
    lost, fresh, present, running = pipeline.jobs()
    consumer = pipeline.consumer()
    consumer.acknowledge(
        entry
        for entry in consumer.read({Lane.STANDARD: 10})
        if entry.ticket.job_id in {lost.id, fresh.id, running.id}
    )
    pipeline.claim(running.id)
    for job in (lost, present, running):
        pipeline.change(job.id, dispatched_at=pipeline.time(seconds_from_now=-60))
    # However long this test takes.
    pipeline.change(fresh.id, dispatched_at=pipeline.time(seconds_from_now=60))

    assert dispatcher.reconcile() == 1
    assert dispatcher.reconcile() == 0

    assert [_is_owed(pipeline.job(job.id)) for job in (lost, fresh, present, running)] == [
        True,
        False,
        False,
        False,
    ]
    assert dispatcher.dispatch() == 1
    assert pipeline.delivered() == [lost.id]


def test_who_looks_for_missing_entries_reads_no_more_rows_than_redis_should_hold(pipeline: Pipeline) -> None:
    pipeline.accept(depth=100)
    template = pipeline.job(pipeline.accept(depth=0))
    columns = {c.key: getattr(template, c.key) for c in Job.__table__.columns if c.key != "id"}
    with pipeline.database.transaction() as session:
        session.execute(insert(Job), [{**columns, "id": f"job_late{i}"} for i in range(3000)])
        if not pipeline.database.is_sqlite:
            # Which keeps its statistics by itself, a little later.
            session.execute(text("ANALYZE"))

    with recorded(pipeline.database) as statements:
        pipeline.dispatcher().reconcile()

    plans = [plan_of(pipeline.database, *one) for one in statements if "FROM jobs" in one[0]]
    assert len(plans) == 3
    assert all("ix_jobs_dispatched" in plan for plan in plans), plans


def _is_owed(job: Job) -> bool:
    return job.dispatched_at is None


def test_overdue_jobs_expire(pipeline: Pipeline) -> None:
    batch_id = pipeline.accept(3)
    overdue, in_time, running = (job.id for job in pipeline.jobs())
    pipeline.claim(running)
    for job_id, seconds in ((overdue, -1), (in_time, 60), (running, -1)):
        pipeline.change(job_id, deadline_at=pipeline.time(seconds_from_now=seconds))

    assert pipeline.dispatcher().expire() == [overdue]
    assert pipeline.dispatcher().expire() == []

    job = pipeline.job(overdue)
    assert (job.status, job.error_code) == ("expired", "deadline_exceeded")
    assert job.finished_at is not None
    batch = pipeline.batch(batch_id)
    assert (batch.expired, batch.queued, batch.running) == (1, 1, 1)
    assert pipeline.counted() == pipeline.recounted()


def test_held_jobs_are_not_even_looked_at(pipeline: Pipeline) -> None:
    """However many a paused batch has."""
    template = pipeline.job(pipeline.accept())
    columns = {c.key: getattr(template, c.key) for c in Job.__table__.columns if c.key != "id"}
    with pipeline.database.transaction() as session:
        session.execute(insert(Job), [{**columns, "id": f"job_held{i}", "held": 1} for i in range(3000)])
        if not pipeline.database.is_sqlite:
            # Which keeps its statistics by itself, a little later.
            session.execute(text("ANALYZE"))

    with recorded(pipeline.database) as statements:
        published = pipeline.dispatcher(depth=100).dispatch()

    assert published == 1
    looks = [one for one in statements if "held = 0" in one[0]]
    plans = [plan_of(pipeline.database, *one) for one in looks]
    assert len(plans) > len(Lane)
    # Held jobs are in neither of these.
    free = ("ix_jobs_undispatched", "ix_jobs_available")
    assert all(any(index in plan for index in free) for plan in plans), plans


def test_however_many_are_overdue_they_expire_at_once(pipeline: Pipeline) -> None:
    pipeline.accept(1201, deadline_at=pipeline.time(seconds_from_now=-1))

    expired = pipeline.dispatcher().expire()

    assert len(set(expired)) == 1201
    assert pipeline.counted() == pipeline.recounted()
