"""Scenario 39: a project hands in far more than all others, and the others hardly notice."""

from __future__ import annotations

import math

import pytest

from models.settings import Settings
from models.tables.job import Job, JobStatus, Lane
from tests.models.pipeline import Pipeline

#: Jobs that the simulated worker takes at once.
WINDOW = 64
#: Windows that may be in Redis.
NUM_WINDOWS: int = Settings.model_fields["dispatch_windows"].default


@pytest.fixture
def database_url(any_database_url: str) -> str:
    return any_database_url


class Mill:
    """A worker that takes a window, answers all of it, and takes the next one; time is counted in windows."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._dispatcher = pipeline.dispatcher(depth=NUM_WINDOWS * WINDOW)
        self._consumer = pipeline.consumer("w1")
        self.num_windows = 0

    def grind(self) -> list[Job]:
        """Dispatch, serve one window, and return its jobs."""
        self._dispatcher.dispatch()
        entries = self._consumer.read({Lane.BULK: WINDOW})
        jobs = self._pipeline.claim(*(entry.ticket.job_id for entry in entries))
        self._pipeline.publish(*jobs)
        self._consumer.acknowledge(entries)
        self.num_windows += 1
        return self._pipeline.jobs(*(job.id for job in jobs))


def waits_of_small_projects(pipeline: Pipeline, *, num_noisy: int, num_rounds: int) -> list[int]:
    """How many windows each job of small projects waited, its own included, beside `num_noisy` others."""
    pipeline.accept(num_noisy, depth=NUM_WINDOWS * WINDOW, lane=Lane.BULK, cost_tokens=500)
    mill = Mill(pipeline)
    for _ in range(NUM_WINDOWS):
        mill.grind()
    waits = []
    for number in range(num_rounds):
        small = pipeline.new_project(f"small {number}")
        pipeline.accept(10, project_id=small, depth=NUM_WINDOWS * WINDOW, lane=Lane.BULK, cost_tokens=500)
        came_at, num_served = mill.num_windows, 0
        while num_served < 10:
            served = [job for job in mill.grind() if job.project_id == small]
            num_served += len(served)
            waits += [mill.num_windows - came_at] * len(served)
    return waits


def p95(values: list[int]) -> int:
    return sorted(values)[math.ceil(0.95 * len(values)) - 1]


def test_ten_jobs_beside_a_backlog_are_served_within_a_few_windows(pipeline: Pipeline) -> None:
    waits = waits_of_small_projects(pipeline, num_noisy=1000, num_rounds=2)

    assert p95(waits) <= 3
    # The noisy project was not shut out either: windows are shared.
    assert pipeline.counted()[pipeline.project_id, Lane.BULK, JobStatus.SUCCEEDED] > 300


@pytest.mark.slow
class TestMany:
    @pytest.fixture
    def database_url(self, sqlite_url: str) -> str:
        return sqlite_url

    def test_ten_jobs_beside_100000_are_served_within_a_few_windows(self, pipeline: Pipeline) -> None:
        assert p95(waits_of_small_projects(pipeline, num_noisy=100_000, num_rounds=10)) <= 3
