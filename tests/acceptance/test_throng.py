"""500 jobs from 20 threads, with and without a worker that is killed in the middle."""

from __future__ import annotations

from typing import Any

import psutil
import pytest

from tests.acceptance.eventually import eventually
from tests.acceptance.process_tree import peak_memory_bytes
from tests.acceptance.service import Service, texts, wait_for_log
from tests.acceptance.state_database import count_results, has_running_jobs
from tests.acceptance.throng import answer_all, num_tokens

_PROMPTS = [f"Mill {n} of {n * n} grinds" for n in range(500)]

_MAX_API_BYTES = 150_000_000


@pytest.fixture(scope="module")
def calm_answers(service: Service) -> list[dict[str, Any]]:
    """The answers of a worker that nobody disturbs."""
    return answer_all(service.api, _PROMPTS)


def test_all_succeed(calm_answers: list[dict[str, Any]]) -> None:
    assert {job["status"] for job in calm_answers} == {"succeeded"}
    assert [job["usage"]["completion_tokens"] for job in calm_answers] == [num_tokens(n) for n in range(500)]
    # Answers tell prompts apart, so that a mixed-up one would be seen.
    assert len(set(texts(calm_answers))) > 450


def test_all_succeed_once_though_the_worker_is_killed(
    service: Service, calm_answers: list[dict[str, Any]]
) -> None:
    before = count_results(service.database_file)
    log_before = len(service.log)
    worker = service.tree.role("worker")

    def kill_in_the_middle() -> None:
        eventually(lambda: count_results(service.database_file) >= before + 100, what="100 results")
        eventually(lambda: _is_caught_at_work(service, worker), what="a worker with running jobs")
        worker.kill()

    jobs = answer_all(service.api, _PROMPTS, meanwhile=kill_in_the_middle)

    assert len({job["id"] for job in jobs}) == 500
    assert texts(jobs) == texts(calm_answers)
    assert count_results(service.database_file) == before + 500
    assert {job["attempt"] for job in jobs} == {1, 2}
    wait_for_log(service, r'"name": "worker".*"child_died"', after=log_before)
    assert service.tree.role("worker").pid != worker.pid


def test_the_api_stays_small(service: Service, calm_answers: list[dict[str, Any]]) -> None:
    api = service.tree.role("api")

    peaks = [peak_memory_bytes(process) for process in (api, *api.children())]

    assert len(calm_answers) == 500
    assert len(peaks) >= 2
    assert max(peaks) < _MAX_API_BYTES, peaks


def _is_caught_at_work(service: Service, worker: psutil.Process) -> bool:
    """Stop the worker, and let it go on unless it has jobs running."""
    worker.suspend()
    if has_running_jobs(service.database_file):
        return True
    worker.resume()
    return False
