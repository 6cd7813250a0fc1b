from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from models.batch_outlook import BatchOutlook, look_ahead
from models.fleet import FleetSpeed
from models.job_store import MAX_POSITION, Place
from models.tables.batch_job import BatchJob, BatchStatus

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)
SPEED = FleetSpeed(num_alive=2, tokens_per_second=50.0)


def batch(**values: Any) -> BatchJob:
    """10 lines of 100 tokens, of which 4 have ended; an hour is left."""
    plain: dict[str, Any] = {
        "status": BatchStatus.IN_PROGRESS,
        "total": 10,
        "queued": 5,
        "running": 1,
        "succeeded": 3,
        "failed": 1,
        "cancelled": 0,
        "expired": 0,
        "cost_tokens": 1000,
        "expires_at": AT + timedelta(hours=1),
    }
    return BatchJob(**{**plain, **values})


def test_what_is_left_is_computed_after_what_waits_before() -> None:
    place = Place(num_before=3, tokens_before=400)

    found = look_ahead(batch(), AT, SPEED, place)

    # (6 lines of 100 tokens + 400 tokens) / 50 tokens per second
    assert found == BatchOutlook(place=place, eta_seconds=20.0, deadline_at_risk=False)


def test_with_nothing_left_in_the_queue_only_what_runs_counts() -> None:
    found = look_ahead(batch(queued=0, running=1, succeeded=9, failed=0), AT, SPEED, None)

    assert found == BatchOutlook(place=None, eta_seconds=2.0, deadline_at_risk=False)


def test_lines_that_are_no_jobs_yet_cost_what_the_others_cost() -> None:
    """4 of 10 lines are jobs, of 100 tokens each; one has ended."""
    split = batch(split_line=4, queued=3, running=0, succeeded=1, failed=0, cost_tokens=400)

    found = look_ahead(split, AT, SPEED, Place(0, 0))

    assert found.eta_seconds == 18.0


def test_nothing_is_known_before_the_first_line_is_a_job() -> None:
    found = look_ahead(batch(split_line=0, queued=0, running=0, succeeded=0, failed=0), AT, SPEED, None)

    assert found == BatchOutlook()


def test_it_waits_for_its_time() -> None:
    later = batch(available_at=AT + timedelta(seconds=100))
    past = batch(available_at=AT - timedelta(seconds=100))

    assert look_ahead(later, AT, SPEED, None).eta_seconds == 112.0
    assert look_ahead(past, AT, SPEED, None).eta_seconds == 12.0


@pytest.mark.parametrize(("seconds_left", "at_risk"), [(11, True), (13, False), (-1, True)])
def test_the_deadline_is_at_risk_if_it_comes_before_the_end(seconds_left: int, at_risk: bool) -> None:
    tight = batch(expires_at=AT + timedelta(seconds=seconds_left))

    assert look_ahead(tight, AT, SPEED, None).deadline_at_risk is at_risk


def test_without_a_deadline_nothing_is_at_risk() -> None:
    found = look_ahead(batch(expires_at=None), AT, SPEED, None)

    assert (found.eta_seconds, found.deadline_at_risk) == (12.0, None)


@pytest.mark.parametrize(
    ("values", "speed"),
    [({}, FleetSpeed(0, None)), ({"paused_at": AT}, SPEED)],
)
def test_while_it_stands_still_its_deadline_is_at_risk(values: dict[str, Any], speed: FleetSpeed) -> None:
    found = look_ahead(batch(**values), AT, speed, Place(0, 0))

    assert found == BatchOutlook(place=Place(0, 0), eta_seconds=None, deadline_at_risk=True)


def test_workers_that_have_not_told_their_speed_tell_no_time() -> None:
    found = look_ahead(batch(), AT, FleetSpeed(1, None), Place(0, 0))

    assert found == BatchOutlook(place=Place(0, 0), eta_seconds=None, deadline_at_risk=None)


def test_far_back_in_the_queue_no_time_is_told_but_a_risk_that_is_sure() -> None:
    far = Place(MAX_POSITION, 1_000_000)

    assert look_ahead(batch(), AT, SPEED, far) == BatchOutlook(far, None, True)


@pytest.mark.parametrize(
    "status", ["failed", "finalizing", "completed", "expired", "cancelling", "cancelled"]
)
def test_of_what_waits_for_no_line_nothing_is_told(status: str) -> None:
    assert look_ahead(batch(status=status), AT, SPEED, None) == BatchOutlook()


def test_while_it_is_validated_only_workers_are_missed() -> None:
    checked = batch(status="validating", total=0, queued=0, running=0, succeeded=0, failed=0)

    assert look_ahead(checked, AT, SPEED, None) == BatchOutlook()
    assert look_ahead(checked, AT, FleetSpeed(0, None), None).deadline_at_risk is True
