"""The checks of a run: each finds the fault it is there for, and nothing in a ledger without one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from models.tables.batch_job import BatchJob, BatchStatus
from models.tables.job import Job, JobResult, JobStatus
from tests.chaos.run.asked import Ask, Line, Temper, make_tag
from tests.chaos.run.blows import Excuse
from tests.chaos.run.breach import Kind
from tests.chaos.run.check_asks import check_asks
from tests.chaos.run.check_counters import check_counters
from tests.chaos.run.check_history import check_history, num_in_flight, num_recomputed
from tests.chaos.run.history import Change
from tests.chaos.run.ledger import Ledger

_AT = datetime(2026, 1, 1, tzinfo=UTC)
_WORKER = "host:7:abc"


def walk(job_id: str, *statuses: str) -> list[Change]:
    """A job's changes through these statuses, from queued on."""
    token, changes = 0, list[Change]()
    for before, after in zip(("queued", *statuses), statuses, strict=False):
        claimed = token + (after == "running")
        changes.append(Change(job_id, before, after, token, claimed, False, _WORKER, 100.0 + len(changes)))
        token = claimed
    return changes


def make_job(job_id: str, tag: str, status: JobStatus, *, batch: str | None = None, line: int = 0) -> Job:
    return Job(
        id=job_id,
        project_id="proj_a",
        batch_id=batch,
        line=line if batch else None,
        custom_id=tag,
        lane="standard",
        status=status,
        num_retries=0,
        num_prompt_tokens=5 if status == JobStatus.SUCCEEDED else None,
        num_completion_tokens=2 if status == JobStatus.SUCCEEDED else None,
    )


def answer(job_id: str, tag: str) -> JobResult:
    return JobResult(job_id=job_id, body=json.dumps({"choices": [{"text": f"{tag} [slow:0.1]."}]}))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """A single job that kills its workers, and a list of two, the second computed twice after a crash."""
    single = Ask("key-0", (Line(make_tag(0, 0), Temper.ABORT),), False, {"job_a"})
    lines = (Line(make_tag(1, 0), Temper.PLAIN), Line(make_tag(1, 1), Temper.PLAIN))
    poison = make_job("job_a", make_tag(0, 0), JobStatus.FAILED)
    poison.error_code = "poison"
    jobs = [
        poison,
        make_job("job_b", make_tag(1, 0), JobStatus.SUCCEEDED, batch="batch_a", line=0),
        make_job("job_c", make_tag(1, 1), JobStatus.SUCCEEDED, batch="batch_a", line=1),
    ]
    batch = BatchJob(
        id="batch_a",
        status=BatchStatus.COMPLETED,
        total=2,
        queued=0,
        running=0,
        succeeded=2,
        failed=0,
        cancelled=0,
        expired=0,
        num_prompt_tokens=10,
        num_completion_tokens=4,
        completed_at=_AT,
    )
    crash = ("running", "queued")
    return Ledger(
        asks=[single, Ask("key-1", lines, True, {"batch_a"})],
        jobs={job.id: job for job in jobs},
        results={"job_b": answer("job_b", make_tag(1, 0)), "job_c": answer("job_c", make_tag(1, 1))},
        batches={"batch_a": batch},
        counts={("proj_a", "standard", "failed"): 1, ("proj_a", "standard", "succeeded"): 2},
        keys={"key-0": "job_a", "key-1": "batch_a"},
        history={
            "job_a": walk("job_a", *crash, *crash, "running", "failed"),
            "job_b": walk("job_b", "running", "succeeded"),
            "job_c": walk("job_c", *crash, "running", "succeeded"),
        },
        runs=Counter({"job_a": 3, "job_b": 1, "job_c": 2}),
        folder=tmp_path,
    )


def kinds(ledger: Ledger, excuses: Sequence[Excuse] = (Excuse("death", 7, 50.0),)) -> set[Kind]:
    found = [*check_asks(ledger), *check_history(ledger, excuses), *check_counters(ledger)]
    return {breach.kind for breach in found}


def test_a_ledger_without_fault_has_none(ledger: Ledger) -> None:
    assert kinds(ledger) == set()
    assert (num_recomputed(ledger), num_in_flight(ledger)) == (3, 3)


def lose_a_row(ledger: Ledger) -> None:
    del ledger.jobs["job_a"]


def leave_a_job_open(ledger: Ledger) -> None:
    ledger.jobs["job_a"].status = JobStatus.QUEUED


def lose_an_answer(ledger: Ledger) -> None:
    del ledger.results["job_b"]


def add_a_row(ledger: Ledger) -> None:
    ledger.jobs["job_d"] = make_job("job_d", make_tag(0, 0), JobStatus.SUCCEEDED)


def accept_a_key_twice(ledger: Ledger) -> None:
    ledger.asks[0].accepted_ids.add("job_e")


def end_twice(ledger: Ledger) -> None:
    ledger.history["job_b"] += walk("job_b", "running", "succeeded", "failed")[2:]


def compute_without_a_claim(ledger: Ledger) -> None:
    ledger.runs["job_b"] += 1


def turn_a_token_back(ledger: Ledger) -> None:
    last = ledger.history["job_c"][-1]
    ledger.history["job_c"][-1] = last._replace(token_after=1)


def leave_a_change_out(ledger: Ledger) -> None:
    del ledger.history["job_c"][1]


def answer_another(ledger: Ledger) -> None:
    ledger.results["job_b"] = answer("job_b", make_tag(1, 1))


def exchange_two_lines(ledger: Ledger) -> None:
    ledger.jobs["job_b"].line, ledger.jobs["job_c"].line = 1, 0


def blame_an_innocent(ledger: Ledger) -> None:
    ledger.jobs["job_b"].status, ledger.jobs["job_b"].error_code = JobStatus.FAILED, "poison"


def spare_the_guilty(ledger: Ledger) -> None:
    ledger.jobs["job_a"].status = JobStatus.SUCCEEDED
    ledger.results["job_a"] = answer("job_a", make_tag(0, 0))


def cancel_unasked(ledger: Ledger) -> None:
    ledger.jobs["job_a"].status = JobStatus.CANCELLED


def count_a_project_wrong(ledger: Ledger) -> None:
    ledger.counts["proj_a", "standard", "succeeded"] = 3


def count_a_batch_wrong(ledger: Ledger) -> None:
    ledger.batches["batch_a"].queued = 1


def leave_a_batch_open(ledger: Ledger) -> None:
    ledger.batches["batch_a"].completed_at = None


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (lose_a_row, Kind.LOST),
        (leave_a_job_open, Kind.LOST),
        (lose_an_answer, Kind.LOST),
        (add_a_row, Kind.DOUBLED),
        (accept_a_key_twice, Kind.DOUBLED),
        (end_twice, Kind.DOUBLED),
        (compute_without_a_claim, Kind.DOUBLED),
        (turn_a_token_back, Kind.ILLEGAL_CHANGE),
        (leave_a_change_out, Kind.ILLEGAL_CHANGE),
        (answer_another, Kind.FOREIGN),
        (exchange_two_lines, Kind.MISORDERED),
        (blame_an_innocent, Kind.POISONED),
        (spare_the_guilty, Kind.WRONG_END),
        (cancel_unasked, Kind.WRONG_END),
        (count_a_project_wrong, Kind.MISCOUNTED),
        (count_a_batch_wrong, Kind.MISCOUNTED),
        (leave_a_batch_open, Kind.MISCOUNTED),
    ],
)
def test_a_fault_is_found(ledger: Ledger, spoil: Callable[[Ledger], None], kind: Kind) -> None:
    spoil(ledger)

    assert kind in kinds(ledger)


@pytest.mark.parametrize(
    "excuse",
    [Excuse("death", 8, 50.0), Excuse("death", 7, 200.0), Excuse("database", None, 50.0, 60.0)],
    ids=["of another", "of later", "of long ago"],
)
def test_a_lease_that_was_taken_for_nothing_is_found(ledger: Ledger, excuse: Excuse) -> None:
    assert kinds(ledger, [excuse]) == {Kind.UNEXPLAINED}
