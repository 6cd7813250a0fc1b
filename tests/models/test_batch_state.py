"""Pure rules: what is next, what a job should be like, when a batch is over."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from models.batch_state import BatchStep, conclude, conform, next_step, reopen, settle
from models.tables.batch_job import BatchJob, BatchStatus
from models.tables.job import Job, JobStatus, Lane

AT = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
LATER = AT + timedelta(hours=1)
EARLIER = AT - timedelta(hours=1)


def batch(**values: Any) -> BatchJob:
    counts = dict.fromkeys([status.value for status in JobStatus], 0)
    plain = {"status": BatchStatus.IN_PROGRESS, "total": 2, "input_file_id": "file_1", "lane": "bulk"}
    return BatchJob(**{**counts, "output_version": 0, **plain, **values})


def job(**values: Any) -> Job:
    return Job(**{"held": 0, "lane": "bulk", "status": JobStatus.QUEUED, "dispatched_at": EARLIER, **values})


@pytest.mark.parametrize(
    ("values", "step"),
    [
        ({"status": BatchStatus.VALIDATING, "sweep_line": 0}, BatchStep.VALIDATE),
        ({"sweep_line": 0, "split_line": 5}, BatchStep.SWEEP),
        ({"split_line": 5, "assembly_line": 0}, BatchStep.SPLIT),
        ({"split_line": 5, "available_at": LATER}, None),
        ({"split_line": 5, "available_at": LATER, "sweep_line": 0}, BatchStep.SWEEP),
        ({"split_line": 5, "available_at": LATER, "cancelling_at": AT}, BatchStep.SPLIT),
        ({"split_line": 5, "available_at": LATER, "expires_at": AT}, BatchStep.SPLIT),
        ({"retry_line": 0, "sweep_line": 0}, BatchStep.SWEEP),
        ({"retry_line": 0}, BatchStep.RETRY),
        ({"status": BatchStatus.FINALIZING, "assembly_line": 0}, BatchStep.ASSEMBLE),
        ({}, None),
    ],
)
def test_of_several_steps_that_wait_one_is_next(values: dict[str, Any], step: BatchStep | None) -> None:
    assert next_step(batch(**values), AT) == step


@pytest.mark.parametrize("cursor", ["split_line", "sweep_line", "retry_line"])
def test_a_batch_goes_on_once_all_has_ended_and_no_step_waits(cursor: str) -> None:
    waits = batch(succeeded=1, failed=1, **{cursor: 2})
    settle(waits, AT)
    done = batch(succeeded=1, failed=1)
    settle(done, AT)
    open_still = batch(succeeded=1, running=1)
    settle(open_still, AT)

    assert (waits.status, waits.assembly_line) == (BatchStatus.IN_PROGRESS, None)
    assert (done.status, done.assembly_line, done.finalizing_at) == (BatchStatus.FINALIZING, 0, AT)
    assert (open_still.status, open_still.assembly_line) == (BatchStatus.IN_PROGRESS, None)


def test_to_settle_twice_does_not_begin_the_files_anew() -> None:
    cancelled = batch(status=BatchStatus.CANCELLING, cancelling_at=EARLIER, cancelled=2)
    settle(cancelled, AT)
    cancelled.assembly_line = 1

    settle(cancelled, LATER)

    assert (cancelled.status, cancelled.assembly_line) == (BatchStatus.CANCELLING, 1)
    assert cancelled.finalizing_at == AT


@pytest.mark.parametrize(
    ("values", "status"),
    [
        ({}, BatchStatus.COMPLETED),
        ({"expired": 1}, BatchStatus.EXPIRED),
        ({"expired": 1, "cancelling_at": EARLIER}, BatchStatus.CANCELLED),
    ],
)
def test_how_a_batch_is_over(values: dict[str, Any], status: BatchStatus) -> None:
    over = batch(status=BatchStatus.FINALIZING, assembly_line=2, work_until=LATER, **values)

    conclude(over, AT)

    assert (over.status, getattr(over, f"{status}_at")) == (status, AT)
    assert (over.assembly_line, over.output_version, over.work_until) == (None, 1, None)


@pytest.mark.parametrize(
    ("expires_at", "window", "renewed"),
    [
        (LATER, "2h", LATER),
        (EARLIER, "2h", AT + timedelta(hours=2)),
        (EARLIER, None, None),
        (None, None, None),
    ],
)
def test_a_batch_that_is_opened_again_is_as_if_newly_begun(
    expires_at: datetime | None, window: str | None, renewed: datetime | None
) -> None:
    values = {
        "expires_at": expires_at,
        "completion_window": window,
        "paused_at": EARLIER,
        "available_at": LATER,
    }
    again = batch(status=BatchStatus.CANCELLED, cancelling_at=EARLIER, cancelled_at=EARLIER, **values)

    reopen(again, AT)

    assert again.status == BatchStatus.IN_PROGRESS
    assert (again.cancelling_at, again.cancelled_at, again.paused_at) == (None, None, None)
    # Who asks for it again wants it now.
    assert again.available_at is None
    assert again.expires_at == renewed


@pytest.mark.parametrize(
    ("values", "before", "held", "dispatched_at"),
    [
        ({}, {}, 0, EARLIER),
        ({"paused_at": AT}, {}, 1, None),
        ({}, {"held": 1, "dispatched_at": None}, 0, None),
        ({"lane": "standard"}, {}, 0, None),
        ({"lane": None}, {}, 0, EARLIER),
    ],
)
def test_an_entry_is_given_up_where_it_must_not_be_used(
    values: dict[str, Any], before: dict[str, Any], held: int, dispatched_at: datetime | None
) -> None:
    one = job(**before)

    conform(one, batch(**values))

    assert (one.held, one.dispatched_at) == (held, dispatched_at)
    assert one.lane == (values.get("lane") or Lane.BULK)


@pytest.mark.parametrize(
    ("values", "deadline_at"),
    [
        ({"expires_at": LATER}, LATER),
        ({"expires_at": None}, None),
        ({"expires_at": None, "input_file_id": None}, EARLIER),
        ({"expires_at": LATER, "input_file_id": None}, LATER),
    ],
)
def test_the_end_of_a_batch_is_that_of_its_lines(
    values: dict[str, Any], deadline_at: datetime | None
) -> None:
    one = job(deadline_at=EARLIER)

    conform(one, batch(**values))

    assert one.deadline_at == deadline_at
