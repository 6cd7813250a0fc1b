"""Scenario 20: two workers that finish the last two jobs of a batch at the same moment."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from models import move
from models.lease import ClaimedJob
from models.tables.batch_job import BatchStatus
from tests.models.pipeline import Pipeline


@pytest.fixture
def database_url(postgres_url: str) -> str:
    """SQLite lets only one of them come so far."""
    return postgres_url


@pytest.mark.parametrize("num_batches", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_the_last_two_complete_their_batch_once(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, num_batches: int
) -> None:
    together = threading.Barrier(2)
    look_at_batches = move._move_in_batches

    def look_together(*given: Any) -> None:
        # Both have changed their job and none has committed: to each the other's seems to run.
        together.wait(60)
        look_at_batches(*given)

    def publish(job: ClaimedJob) -> set[str]:
        return pipeline.publish(job)

    with ThreadPoolExecutor(2) as pool:
        for _ in range(num_batches):
            batch_id = pipeline.accept(2)
            last_two = pipeline.claim(*[job.id for job in pipeline.jobs() if job.batch_id == batch_id])
            with monkeypatch.context() as patch:
                patch.setattr(move, "_move_in_batches", look_together)
                published = list(pool.map(publish, last_two))

            assert published == [{job.id} for job in last_two]
            batch = pipeline.batch(batch_id)
            assert (batch.status, batch.succeeded, batch.running) == (BatchStatus.COMPLETED, 2, 0)
            assert batch.completed_at is not None
    assert pipeline.counted() == pipeline.recounted()
