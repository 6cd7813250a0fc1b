"""500 jobs from 20 threads, with and without a worker that is killed in the middle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.process_tree import peak_memory_bytes
from tests.acceptance.service import Service, texts, wait_for_log
from tests.acceptance.state_database import count_results
from tests.acceptance.throng import answer_all

_PROMPTS = [f"Mill {n} of {n * n} grinds" for n in range(500)]

_MAX_API_BYTES = 150_000_000


@pytest.fixture(scope="module")
def busy(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service whose leases run out soon, so that a dead worker's jobs are taken up soon."""
    with Service.up(tmp_path_factory.mktemp("busy"), model=tiny_model, HEADRACE_LEASE_SECONDS="2") as service:
        yield service


@pytest.fixture(scope="module")
def calm_answers(busy: Service) -> list[dict[str, Any]]:
    """The answers of a worker that nobody disturbs."""
    return answer_all(busy.api, _PROMPTS)


def test_all_succeed(calm_answers: list[dict[str, Any]]) -> None:
    assert {job["status"] for job in calm_answers} == {"succeeded"}
    assert {job["usage"]["completion_tokens"] for job in calm_answers} == {24}
    # Answers tell prompts apart, so that a mixed-up one would be seen.
    assert len(set(texts(calm_answers))) > 450


def test_all_succeed_once_though_the_worker_is_killed(
    busy: Service, calm_answers: list[dict[str, Any]]
) -> None:
    before = count_results(busy.database_file)
    log_before = len(busy.log)
    worker = busy.tree.role("worker")

    jobs = answer_all(busy.api, _PROMPTS, in_the_middle=worker.kill)

    assert len({job["id"] for job in jobs}) == 500
    assert texts(jobs) == texts(calm_answers)
    assert count_results(busy.database_file) == before + 500
    assert {job["attempt"] for job in jobs} == {1, 2}
    wait_for_log(busy, r'"name": "worker".*"child_died"', after=log_before)
    assert busy.tree.role("worker").pid != worker.pid


def test_the_api_stays_small(busy: Service, calm_answers: list[dict[str, Any]]) -> None:
    api = busy.tree.role("api")

    peaks = [peak_memory_bytes(process) for process in (api, *api.children())]

    assert len(calm_answers) == 500
    assert len(peaks) >= 2
    assert max(peaks) < _MAX_API_BYTES, peaks
