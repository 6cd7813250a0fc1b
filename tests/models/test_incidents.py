"""Here `database` is SQLite and PostgreSQL in turn."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from models.consumer import Entry
from models.database import Database
from models.incidents import count_incidents, read_incidents
from models.job_store import JobStore
from models.lease import claim
from models.publication import Outcome, publish
from models.tables.incident import Incident
from models.tables.job import JobStatus
from tests.models.pipeline import MODEL, WINDOW, Pipeline, entry_of

FAILURE: dict[str, Any] = {"status": JobStatus.FAILED, "body": None, "error": "{}", "may_retry": True}


def counted(database: Database) -> dict[tuple[str, str], int]:
    with database.reading() as session:
        return {
            (incident.value, model): number for (incident, model), number in read_incidents(session).items()
        }


def take(pipeline: Pipeline, *entries: Entry) -> list[str]:
    jobs = claim(pipeline.database, entries, worker_id="w2", lease_seconds=30.0, window=WINDOW)
    return [job.id for job in jobs]


def test_whoever_counts_nothing_is_lost(database: Database) -> None:
    """Neither by those who count for the first time at once, nor later."""

    def count(number: int) -> None:
        with database.transaction() as session:
            count_incidents(session, Incident.POISON, ["a", "b", "a"] if number % 2 else ["b"])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(count, range(40)))

    assert counted(database) == {("poison", "a"): 40, ("poison", "b"): 40}


def test_what_is_rolled_back_has_not_happened(database: Database) -> None:
    def fail() -> None:
        with database.transaction() as session:
            count_incidents(session, Incident.POISON, ["a"])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert counted(database) == {}


def test_a_job_that_fails_as_poison_is_counted(pipeline: Pipeline) -> None:
    pipeline.claim(pipeline.accept(), lease_seconds=-1)
    pipeline.rescue()
    for _ in range(2):
        assert counted(pipeline.database) == {}
        pipeline.claim_suspects(lease_seconds=-1)
        pipeline.rescue()

    assert counted(pipeline.database) == {("poison", MODEL): 1}


def test_the_result_of_a_cancelled_job_is_stale(pipeline: Pipeline) -> None:
    job_id = pipeline.accept()
    (job,) = pipeline.claim()
    JobStore(pipeline.database).cancel(pipeline.project_id, job_id)

    assert pipeline.publish(job) == set()

    assert counted(pipeline.database) == {("stale_result", MODEL): 1}


def test_the_result_of_a_worker_that_lost_its_job_is_stale(pipeline: Pipeline) -> None:
    job_id = pipeline.accept()
    (old,) = pipeline.claim(lease_seconds=-1)
    pipeline.rescue()

    pipeline.publish(old)
    (new,) = pipeline.claim_suspects()
    answers = [Outcome(job_id, one.held.token, JobStatus.SUCCEEDED, body='"x"') for one in (old, new)]
    assert publish(pipeline.database, answers) == {job_id}
    pipeline.publish(old)

    assert counted(pipeline.database) == {("stale_result", MODEL): 3}


@pytest.mark.parametrize(
    "values", [{}, FAILURE, {**FAILURE, "may_retry": False}], ids=["ok", "retry", "failed"]
)
def test_a_commit_whose_reply_was_lost_is_no_stale_result(pipeline: Pipeline, values: dict[str, Any]) -> None:
    pipeline.accept()
    (job,) = pipeline.claim()

    assert [len(pipeline.publish(job, **values)) for _ in range(2)] == [1, 0]

    assert counted(pipeline.database) == {}


def test_a_job_that_there_never_was_is_not_counted(pipeline: Pipeline) -> None:
    assert publish(pipeline.database, [Outcome("job_0", 1, JobStatus.SUCCEEDED, body='"x"')]) == set()

    assert counted(pipeline.database) == {}


def test_a_second_entry_of_a_job_that_was_taken_is_a_duplicate(pipeline: Pipeline) -> None:
    job_id = pipeline.accept()
    entry = entry_of(pipeline.job(job_id))
    second = entry._replace(entry_id="2-1")
    (job,) = pipeline.claim()

    assert take(pipeline, second) == []
    pipeline.publish(job)
    assert take(pipeline, second) == []

    assert counted(pipeline.database) == {("duplicate_entry", MODEL): 2}


def test_two_entries_of_a_job_in_one_window_are_one_too_many(pipeline: Pipeline) -> None:
    job_id = pipeline.accept()
    entry = entry_of(pipeline.job(job_id))

    assert take(pipeline, entry, entry._replace(entry_id="2-1")) == [job_id]

    assert counted(pipeline.database) == {("duplicate_entry", MODEL): 1}


def test_the_only_entry_of_a_job_that_cannot_be_taken_is_no_duplicate(pipeline: Pipeline) -> None:
    cancelled, suspect, overdue = pipeline.accept(), pipeline.accept(), pipeline.accept()
    JobStore(pipeline.database).cancel(pipeline.project_id, cancelled)
    pipeline.change(suspect, isolation=1)
    pipeline.change(overdue, deadline_at=pipeline.time(seconds_from_now=-1))

    assert take(pipeline, *(entry_of(job) for job in pipeline.jobs())) == []

    assert [job.status for job in pipeline.jobs()] == ["cancelled", "queued", "expired"]
    assert counted(pipeline.database) == {}
