from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select

import models.accept
from models.accept import Acceptance, Submission
from models.errors import IdempotencyMismatch
from models.queue import JobQueue
from models.tables.batch_job import BatchStatus
from models.tables.job import JobRequest, Lane
from tests.models.pipeline import MODEL, Pipeline, make_drafts
from tests.services.redis_server import ValkeyServer


@pytest.fixture
def nowhere() -> Iterator[JobQueue]:
    """A queue whose Redis is away."""
    queue = JobQueue("unix:///nowhere/redis.sock", "test")
    yield queue
    queue.close()


def test_one_job_is_stored_counted_and_queued(pipeline: Pipeline) -> None:
    job_id = pipeline.accept(depth=10, metadata={"a": "ü"}, custom_id="mine", lane=Lane.INTERACTIVE)

    job = pipeline.job(job_id)
    assert (job.status, job.project_id, job.custom_id) == ("queued", pipeline.project_id, "mine")
    assert (job.batch_id, job.line, job.attempt, job.token) == (None, None, 0, 0)
    assert pipeline.counted() == {(pipeline.project_id, "interactive", "queued"): 1}
    with pipeline.database.reading() as session:
        request = session.get_one(JobRequest, job_id)
    assert json.loads(request.body) == {"model": MODEL, "prompt": "prompt 0"}
    assert request.metadata_text == '{"a":"ü"}'
    assert pipeline.delivered(Lane.INTERACTIVE) == [job_id]


def test_a_list_becomes_a_batch_in_order(pipeline: Pipeline) -> None:
    batch_id = pipeline.accept(5, depth=10)

    batch, jobs = pipeline.batch(batch_id), pipeline.jobs()
    assert (batch.status, batch.total, batch.queued) == (BatchStatus.IN_PROGRESS, 5, 5)
    assert [(job.batch_id, job.line) for job in jobs] == [(batch_id, line) for line in range(5)]
    assert pipeline.delivered() == [job.id for job in jobs]


def test_a_list_of_one_is_a_batch_too(pipeline: Pipeline) -> None:
    assert pipeline.batch(pipeline.accept(1)).total == 1


def test_a_seed_is_kept_or_drawn(pipeline: Pipeline) -> None:
    given = pipeline.job(pipeline.accept(seed=-(2**63)))
    drawn = [pipeline.job(pipeline.accept()) for _ in range(2)]

    assert given.seed == -(2**63)
    assert drawn[0].seed != drawn[1].seed


def test_a_list_takes_only_the_free_share_of_the_stream(pipeline: Pipeline) -> None:
    pipeline.accept(depth=4)

    pipeline.accept(9, depth=4)

    jobs = pipeline.jobs()
    assert [job.dispatched_at is not None for job in jobs] == [True] * 4 + [False] * 6
    assert pipeline.delivered() == [job.id for job in jobs[:4]]


def test_nobody_overtakes_a_backlog(pipeline: Pipeline) -> None:
    pipeline.accept(3, depth=2)
    first = pipeline.delivered()

    late = pipeline.accept(depth=2)
    other_lane = pipeline.accept(depth=2, lane=Lane.INTERACTIVE)

    assert first == [job.id for job in pipeline.jobs()[:2]]
    assert pipeline.job(late).dispatched_at is None
    assert pipeline.job(other_lane).dispatched_at is not None


def test_a_redis_that_came_back_empty_is_left_to_the_dispatcher(
    pipeline: Pipeline, valkey_server: ValkeyServer
) -> None:
    older = pipeline.accept(depth=10)
    valkey_server.flush()

    newer = pipeline.accept(depth=10)

    assert pipeline.job(newer).dispatched_at is None
    assert pipeline.dispatcher().dispatch() == 2
    assert pipeline.delivered() == [older, newer]


def test_without_redis_a_job_is_accepted_and_dispatched_later(pipeline: Pipeline, nowhere: JobQueue) -> None:
    submission = Submission(pipeline.project_id, make_drafts(3), as_batch=True)

    batch_id = Acceptance(pipeline.database, nowhere, dispatch_depth=10).accept(submission)

    assert pipeline.batch(batch_id).queued == 3
    assert pipeline.dispatcher().dispatch() == 3
    assert len(pipeline.delivered()) == 3


def test_a_redis_that_dies_before_the_entries_arrive_loses_nothing(
    pipeline: Pipeline, valkey_server: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    depth = pipeline.queue.depth

    def depth_and_death(model: str, lane: Lane) -> int:
        found = depth(model, lane)
        valkey_server.kill()
        return found

    monkeypatch.setattr(pipeline.queue, "depth", depth_and_death)
    try:
        job_id = pipeline.accept(depth=10)
    finally:
        monkeypatch.undo()
        valkey_server.start_again()

    assert pipeline.dispatcher().dispatch() == 1
    assert pipeline.delivered() == [job_id]


@pytest.mark.parametrize("count", [None, 3])
def test_a_replay_gives_the_first_resource(pipeline: Pipeline, count: int | None) -> None:
    first = pipeline.accept(count, idempotency_key="k", depth=10)
    stored = len(pipeline.jobs())

    assert pipeline.accept(count, idempotency_key="k", depth=10) == first
    assert len(pipeline.jobs()) == stored == len(pipeline.delivered())


def test_a_deadline_does_not_make_a_replay_another_request(pipeline: Pipeline) -> None:
    first = pipeline.accept(idempotency_key="k", deadline_at=pipeline.time(seconds_from_now=50))

    assert pipeline.accept(idempotency_key="k", deadline_at=pipeline.time(seconds_from_now=51)) == first


def test_a_deadline_in_seconds_counts_from_when_the_database_took_the_job(pipeline: Pipeline) -> None:
    job = pipeline.job(pipeline.accept(deadline_seconds=90.5))

    assert job.deadline_at is not None
    assert (job.deadline_at - job.created_at).total_seconds() == 90.5


def test_the_order_of_keys_does_not_make_a_replay_another_request(pipeline: Pipeline) -> None:
    acceptance = Acceptance(pipeline.database, pipeline.queue, dispatch_depth=10)
    submission = Submission(pipeline.project_id, make_drafts(1), as_batch=False, idempotency_key="k")
    turned = dict(reversed(list(submission.drafts[0].body.items())))
    first = acceptance.accept(submission)

    again = acceptance.accept(replace(submission, drafts=[replace(submission.drafts[0], body=turned)]))

    assert list(turned) != list(submission.drafts[0].body)
    assert again == first


@pytest.mark.parametrize(
    "other",
    [
        {"body": {"model": MODEL, "prompt": "another"}},
        {"custom_id": "another"},
        {"lane": Lane.BULK},
        {"metadata": {"a": "b"}},
        {"endpoint": "/v1/chat/completions"},
    ],
)
def test_another_request_under_the_same_key_is_refused(pipeline: Pipeline, other: dict[str, object]) -> None:
    acceptance = Acceptance(pipeline.database, pipeline.queue, dispatch_depth=10)
    submission = Submission(pipeline.project_id, make_drafts(1), as_batch=False, idempotency_key="k")
    acceptance.accept(submission)
    changed = [replace(submission.drafts[0], **other)]  # type: ignore[arg-type]

    with pytest.raises(IdempotencyMismatch):
        acceptance.accept(replace(submission, drafts=changed))

    assert len(pipeline.jobs()) == 1


def test_a_key_belongs_to_its_project(pipeline: Pipeline) -> None:
    mine = pipeline.accept(idempotency_key="k")

    other = pipeline.new_project("other")

    assert pipeline.accept(idempotency_key="k", project_id=other) != mine


def test_the_same_key_at_the_same_moment_makes_one_job(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_threads = 4
    together, unknown_to_all = threading.Barrier(num_threads), threading.Barrier(num_threads)
    store = models.accept._store

    def store_together(*arguments: Any) -> Any:
        # All have seen that the key is new; SQLite lets only one transaction come so far.
        if not pipeline.database.is_sqlite:
            unknown_to_all.wait(timeout=60)
        return store(*arguments)

    monkeypatch.setattr(models.accept, "_store", store_together)

    def accept(_: int) -> str:
        together.wait()
        return pipeline.accept(idempotency_key="k", depth=100)

    with ThreadPoolExecutor(num_threads) as pool:
        accepted = set(pool.map(accept, range(num_threads)))

    assert accepted == {job.id for job in pipeline.jobs()}
    assert len(accepted) == 1
    assert pipeline.counted() == pipeline.recounted()
    assert pipeline.delivered() == list(accepted)


def test_the_largest_cost_is_kept_by_both_databases(pipeline: Pipeline) -> None:
    batch_id = pipeline.accept(2, cost_tokens=2**31 - 1)

    with pipeline.database.reading() as session:
        bodies = session.scalars(select(JobRequest.body)).all()
    assert len(bodies) == pipeline.batch(batch_id).total == len(pipeline.claim())
