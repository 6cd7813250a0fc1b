"""The harness finds out when an answer is missing, wrong, or another's."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from bench.pipeline.answers import await_stored, check_answers
from bench.pipeline.submission import Accepted
from models.database import Database
from models.queue import JobQueue
from models.tables.job import JobStatus
from tests.models.pipeline import Pipeline


@pytest.fixture
def backlog(database: Database, queue: JobQueue, redis_url: str, project_id: str) -> Iterator[Pipeline]:
    with Pipeline(database, queue, redis_url, project_id) as found:
        yield found


def answer(backlog: Pipeline, job_id: str, text: str) -> None:
    """Let a worker take this job and say so."""
    backlog.publish(*backlog.claim(job_id), body=json.dumps({"choices": [{"text": text}]}))


def lists(backlog: Pipeline, count: int) -> tuple[list[str], Accepted]:
    """The jobs of a list of `prompt 0`, `prompt 1`, …, and what its client knows."""
    batch_id = backlog.accept(count)
    prompts = [f"prompt {line}" for line in range(count)]
    jobs = sorted(backlog.jobs(), key=lambda job: job.line or 0)
    return [job.id for job in jobs], Accepted({batch_id: prompts}, True, 1.0)


def test_each_job_of_a_list_is_stored_with_its_own_answer(database: Database, backlog: Pipeline) -> None:
    job_ids, accepted = lists(backlog, 2)
    for line, job_id in enumerate(job_ids):
        answer(backlog, job_id, f"prompt {line}")

    stored = check_answers(database, accepted)

    assert len(stored) == 2
    assert all(each.seconds >= 0 for each in stored)


def test_answers_that_were_swapped_are_found(database: Database, backlog: Pipeline) -> None:
    (first, second), accepted = lists(backlog, 2)
    answer(backlog, first, "prompt 1")
    answer(backlog, second, "prompt 0")

    with pytest.raises(RuntimeError, match=r"asked 'prompt [01]' and was answered 'prompt [01]'"):
        check_answers(database, accepted)


def test_a_missing_answer_is_found(database: Database, backlog: Pipeline) -> None:
    (first, _), accepted = lists(backlog, 2)
    answer(backlog, first, "prompt 0")

    with pytest.raises(RuntimeError, match="2 jobs have 1 answers"):
        check_answers(database, accepted)


def test_a_job_that_failed_is_found(database: Database, backlog: Pipeline) -> None:
    job_id = backlog.accept()
    backlog.publish(
        *backlog.claim(job_id), status=JobStatus.FAILED, body=None, error="{}", error_code="engine_error"
    )

    with pytest.raises(RuntimeError, match=f"{job_id} is failed after 1 attempts"):
        check_answers(database, Accepted({job_id: ["prompt 0"]}, False, 1.0))


def test_it_waits_until_the_last_job_is_stored(database: Database, backlog: Pipeline) -> None:
    job_ids, _ = lists(backlog, 3)

    def look() -> None:
        answer(backlog, job_ids.pop(), "said")

    await_stored(database, look=look)

    assert not job_ids
