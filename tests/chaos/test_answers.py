"""Scenarios 22 to 24: requests that kill the engine, answers to be stored by nobody, and none."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable

import pytest

from models.job_error import JobError
from models.publication import MAX_RETRIES
from models.tables.job import FINAL_STATUSES, JobResult, JobStatus
from tests.chaos.house import House

ENDED = {JobStatus.SUCCEEDED, JobStatus.FAILED}


@pytest.fixture
def database_url(any_database_url: str) -> str:
    return any_database_url


@pytest.fixture
def house(make_house: Callable[..., House]) -> House:
    """A house whose worker takes 32 jobs together."""
    return make_house(max_jobs=32, max_num_seqs=32)


def result_of(house: House, job_id: str) -> JobResult:
    with house.database.reading() as session:
        return session.get_one(JobResult, job_id)


def test_one_answer_that_no_database_can_hold_spoils_none_of_31(house: House) -> None:
    marks = [""] * 20 + ["[nul]"] + [""] * 11
    ids = house.ask_each(house.start_api(), marks, logprobs=1)
    house.start_worker()

    house.check()

    assert len({job.window_id for job in house.jobs(ids)}) == 1
    (choice,) = json.loads(result_of(house, ids[20]).body or "")["choices"]
    assert choice["text"] == house.asked[ids[20]] + "\x00\N{REPLACEMENT CHARACTER}"
    assert set(choice["logprobs"]["token_logprobs"]) == {-9999.0}


def test_an_answer_that_never_comes_is_asked_for_again_and_shifts_no_other(house: House) -> None:
    marks = ["", "[reorder][tokens:2]", "", "[drop]", *[""] * 4]
    ids = house.ask_each(house.start_api(), marks, max_tokens=4)
    house.start_worker()

    house.check(may_end=ENDED)

    lost, others = house.jobs(ids)[3], [job for job in house.jobs(ids) if job.id != ids[3]]
    assert (lost.status, lost.error_code, lost.attempt) == ("failed", "engine_error", MAX_RETRIES + 1)
    assert {(job.status, job.attempt) for job in others} == {("succeeded", 1)}
    assert house.num_runs(ids) == [1, 1, 1, MAX_RETRIES + 1, 1, 1, 1, 1]


def die_of_one_in_32(house: House) -> None:
    marks = ["[slow:0.5]"] * 21 + ["[abort]"] + ["[slow:0.5]"] * 10
    ids = house.ask_each(house.start_api(), marks)
    num_crashes = 0
    worker = house.start("worker")
    while not house.statuses(ids).keys() <= FINAL_STATUSES:
        if worker.has_ended(within_seconds=0.1):
            assert worker.wait() == -signal.SIGKILL
            num_crashes += 1
            assert num_crashes <= 8
            worker = house.start("worker")

    house.check(may_end=ENDED)

    jobs = house.jobs(ids)
    assert [job.status for job in jobs] == ["succeeded"] * 21 + ["failed"] + ["succeeded"] * 10
    poison = jobs[21]
    error = JobError.of(poison, result_of(house, poison.id))
    assert error is not None
    assert error.code == "poison"
    # In flight: 32, then groups of 16, 8, 4 and 2, and three times alone.
    assert 3 < num_crashes <= 8
    assert (poison.attempt, poison.crashes_alone) == (num_crashes, 2)
    assert all(job.crashes_alone == 0 for job in jobs if job is not poison)


class TestPoison:
    @pytest.fixture
    def database_url(self, sqlite_url: str) -> str:
        return sqlite_url

    def test_one_poisonous_job_among_32_in_flight_fails_and_the_others_succeed(self, house: House) -> None:
        die_of_one_in_32(house)


@pytest.mark.slow
class TestPoisonOnPostgresql:
    @pytest.fixture
    def database_url(self, postgres_url: str) -> str:
        return postgres_url

    def test_one_poisonous_job_among_32_in_flight_fails_and_the_others_succeed(self, house: House) -> None:
        die_of_one_in_32(house)
