"""The trigger that notes what becomes of every job, on both databases."""

from __future__ import annotations

import pytest

from models.tables.job import JobStatus
from tests.chaos.run.history import begin_history, read_history
from tests.models.pipeline import Pipeline


@pytest.fixture
def database_url(any_database_url: str) -> str:
    return any_database_url


@pytest.fixture
def pipeline(pipeline: Pipeline) -> Pipeline:
    begin_history(pipeline.database)
    return pipeline


def test_it_holds_every_change_of_status_and_token(pipeline: Pipeline) -> None:
    job_id = pipeline.accept()
    first = pipeline.claim(job_id, worker_id="host:1:a")
    pipeline.publish(*first, status=JobStatus.FAILED, may_retry=True)
    second = pipeline.claim(job_id, worker_id="host:2:b", lease_seconds=-1)
    pipeline.rescue()
    third = pipeline.claim_suspects(worker_id="host:3:c")
    pipeline.publish(*second)
    pipeline.publish(*third)

    changes = read_history(pipeline.database)[job_id]
    assert [change[1:7] for change in changes] == [
        ("queued", "running", 0, 1, False, "host:1:a"),
        ("running", "queued", 1, 1, True, "host:1:a"),
        ("queued", "running", 1, 2, False, "host:2:b"),
        ("running", "queued", 2, 2, False, "host:2:b"),
        ("queued", "running", 2, 3, False, "host:3:c"),
        ("running", "succeeded", 3, 3, False, "host:3:c"),
    ]
    assert [change.is_break for change in changes] == [False, False, False, True, False, False]
    times = [change.at for change in changes]
    assert times == sorted(times)
    ended_at = pipeline.job(job_id).finished_at
    assert ended_at is not None
    assert abs(times[-1] - ended_at.timestamp()) < 60


def test_it_holds_what_was_undone_past_all_rules(pipeline: Pipeline) -> None:
    job_id = pipeline.accept()
    pipeline.change(job_id, status=JobStatus.CANCELLED)
    pipeline.change(job_id, token=5)
    pipeline.change(job_id, token=0)
    pipeline.change(job_id, attempt=3)
    pipeline.change(job_id, status=JobStatus.QUEUED)

    changes = read_history(pipeline.database)[job_id]
    assert [change[1:5] for change in changes] == [
        ("queued", "cancelled", 0, 0),
        ("cancelled", "cancelled", 0, 5),
        ("cancelled", "cancelled", 5, 0),
        ("cancelled", "queued", 0, 0),
    ]
