"""Who works on which batch."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from models.batch_state import BatchStep
from models.batch_work import WORK_SECONDS, BatchWork, WorkLease, WorkLost
from models.database import Database, now
from models.tables.batch_job import BatchJob, BatchStatus
from tests.models.batch_rows import add_batch, change_batch
from tests.models.statements import plan_of, recorded
from tests.worker.waiting import eventually

_RUNNING = {"status": BatchStatus.IN_PROGRESS, "total": 3}


@pytest.fixture
def work(database: Database) -> BatchWork:
    return BatchWork(database)


def must_claim(work: BatchWork) -> WorkLease:
    lease = work.claim()
    assert lease is not None
    return lease


def claimed(work: BatchWork) -> Iterator[str]:
    while lease := work.claim():
        yield lease.batch_id


def run_out(database: Database, batch_id: str) -> None:
    with database.reading() as session:
        change_batch(database, batch_id, work_until=now(session) - timedelta(seconds=1))


@pytest.mark.parametrize(
    ("values", "step"),
    [
        ({}, BatchStep.VALIDATE),
        ({**_RUNNING, "split_line": 0}, BatchStep.SPLIT),
        ({**_RUNNING, "sweep_line": 0}, BatchStep.SWEEP),
        ({**_RUNNING, "retry_line": 0}, BatchStep.RETRY),
        ({"status": BatchStatus.FINALIZING, "assembly_line": 0}, BatchStep.ASSEMBLE),
        ({"status": BatchStatus.CANCELLING, "assembly_line": 0}, BatchStep.ASSEMBLE),
        ({**_RUNNING}, None),
        ({"status": BatchStatus.COMPLETED, "sweep_line": 0}, None),
    ],
)
def test_a_batch_is_taken_when_there_is_something_to_do(
    database: Database, work: BatchWork, project_id: str, values: dict[str, Any], step: BatchStep | None
) -> None:
    batch_id = add_batch(database, project_id, **values)

    lease = work.claim()

    assert (lease.batch_id if lease else None) == (batch_id if step else None)
    assert lease is None or work.next_step(lease) == step


@pytest.mark.parametrize(
    ("column", "is_due"),
    [("available_at", True), ("expires_at", True), ("cancelling_at", True), (None, False)],
)
def test_lines_wait_for_the_time_of_their_batch_or_its_end(
    database: Database, work: BatchWork, project_id: str, column: str | None, is_due: bool
) -> None:
    with database.reading() as session:
        at = now(session)
    times = {"available_at": at + timedelta(hours=1), "expires_at": at + timedelta(hours=2)}
    if column is not None:
        times[column] = at - timedelta(seconds=1)
    add_batch(database, project_id, **_RUNNING, split_line=0, **times)

    assert (work.claim() is not None) == is_due


def test_the_one_that_was_longest_without_goes_first(
    database: Database, work: BatchWork, project_id: str
) -> None:
    first, second = (add_batch(database, project_id) for _ in range(2))

    lease = must_claim(work)
    work.release(lease)
    again = list(claimed(work))

    assert lease.batch_id == first
    assert again == [second, first]


def test_nobody_else_gets_a_batch_until_its_lease_runs_out(
    database: Database, work: BatchWork, project_id: str
) -> None:
    batch_id = add_batch(database, project_id)

    lost = must_claim(work)
    assert work.claim() is None
    run_out(database, batch_id)
    lease = must_claim(work)

    assert (lost.token, lease.token) == (1, 2)
    with pytest.raises(WorkLost):
        work.next_step(lost)
    work.release(lost)
    assert work.claim() is None
    assert work.next_step(lease) is BatchStep.VALIDATE


def test_work_renews_the_lease(database: Database, work: BatchWork, project_id: str) -> None:
    batch_id = add_batch(database, project_id)
    lease = must_claim(work)
    run_out(database, batch_id)

    with database.transaction() as session:
        batch = work.locked(session, lease)
        at = now(session)

    assert batch.work_until is not None
    assert batch.work_until > at + timedelta(seconds=WORK_SECONDS - 5)
    assert work.claim() is None


def test_a_lease_is_kept_while_a_step_takes_its_time(
    database: Database, work: BatchWork, project_id: str
) -> None:
    batch_id = add_batch(database, project_id)
    lease = must_claim(work)
    run_out(database, batch_id)

    with work.kept(lease, every_seconds=0.01):
        eventually(lambda: is_kept(database, batch_id))

    run_out(database, batch_id)
    stolen = must_claim(work)
    with work.kept(lease, every_seconds=0.01):
        run_out(database, batch_id)
        assert must_claim(work).token == stolen.token + 1


def is_kept(database: Database, batch_id: str) -> bool:
    with database.reading() as session:
        until = session.get_one(BatchJob, batch_id).work_until
        return until is not None and until > now(session)


def test_a_batch_that_is_over_is_nobodys(database: Database, work: BatchWork, project_id: str) -> None:
    batch_id = add_batch(database, project_id)
    lease = must_claim(work)
    change_batch(database, batch_id, status=BatchStatus.CANCELLED)

    with pytest.raises(WorkLost):
        work.next_step(lease)


def test_what_was_released_cannot_be_gone_on_with(
    database: Database, work: BatchWork, project_id: str
) -> None:
    batch_id = add_batch(database, project_id)
    lease = must_claim(work)

    work.release(lease, pause_seconds=60)

    assert work.claim() is None
    with pytest.raises(WorkLost):
        work.next_step(lease)
    run_out(database, batch_id)
    assert must_claim(work).batch_id == batch_id


def test_batches_that_are_over_are_not_looked_at(
    database: Database, work: BatchWork, project_id: str
) -> None:
    add_batch(database, project_id)
    with recorded(database) as seen:
        must_claim(work)

    plans = [plan_of(database, *found) for found in seen if "FROM batches" in found[0]]

    assert len(plans) == 2
    # PostgreSQL reads so small a table as a whole.
    assert not database.is_sqlite or all("ix_batches_open" in plan for plan in plans)
