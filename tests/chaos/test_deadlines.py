"""Scenario 26: a deadline passes while a job runs, on whatever machine."""

from __future__ import annotations

import pytest

from models.tables.job import JobResult
from tests.models.pipeline import Pipeline


@pytest.fixture
def database_url(any_database_url: str) -> str:
    return any_database_url


def test_a_job_whose_worker_is_lost_past_its_deadline_expires_once_and_a_late_answer_is_discarded(
    pipeline: Pipeline,
) -> None:
    batch_id = pipeline.accept(2, depth=10)
    overdue, other = pipeline.jobs()
    (frozen,) = pipeline.claim(overdue.id, lease_seconds=-1)
    # As if the clock of the database had gone on.
    pipeline.change(overdue.id, deadline_at=pipeline.time(seconds_from_now=-1))

    assert pipeline.dispatcher().expire() == []
    assert pipeline.rescue() == [overdue.id]
    assert pipeline.claim_suspects() == []
    assert pipeline.dispatcher().expire() == []
    late = pipeline.publish(frozen)
    pipeline.publish(*pipeline.claim(other.id))

    assert late == set()
    assert [job.status for job in pipeline.jobs()] == ["expired", "succeeded"]
    assert pipeline.job(overdue.id).error_code == "deadline_exceeded"
    with pipeline.database.reading() as session:
        assert session.get(JobResult, overdue.id) is None
    batch = pipeline.batch(batch_id)
    assert (batch.status, batch.expired, batch.succeeded) == ("completed", 1, 1)
    assert pipeline.counted() == pipeline.recounted()
