from __future__ import annotations

import pytest

from models.tables.job import Lane
from worker.window import (
    CloseReason,
    Member,
    WindowLimits,
    closing_reason,
    lane_shares,
    num_wanted,
    total_tokens,
    wait_left,
)

LIMITS = WindowLimits(max_jobs=3, max_tokens=100, max_wait_seconds=2.0)


def reason(
    *members: Member,
    limits: WindowLimits = LIMITS,
    now: float = 10.0,
    idle: bool = False,
    stopping: bool = False,
) -> CloseReason | None:
    return closing_reason(members, limits, now=now, idle=idle, stopping=stopping)


@pytest.mark.parametrize("idle", [False, True])
@pytest.mark.parametrize("stopping", [False, True])
def test_an_empty_window_stays_open(idle: bool, stopping: bool) -> None:
    assert reason(idle=idle, stopping=stopping, now=1e9) is None


def test_a_window_with_seats_tokens_and_time_left_stays_open() -> None:
    assert reason(Member(10, 10.0), Member(10, 10.0), now=11.9, idle=True) is None


@pytest.mark.parametrize(
    ("members", "now", "expected"),
    [
        ([Member(1, 10.0)] * 3, 10.0, CloseReason.MAX_JOBS),
        ([Member(60, 10.0), Member(40, 10.0)], 10.0, CloseReason.MAX_TOKENS),
        ([Member(5000, 10.0)], 10.0, CloseReason.MAX_TOKENS),
        ([Member(1, 10.0), Member(1, 10.0, deadline=10.5)], 10.5, CloseReason.DEADLINE),
        ([Member(1, 10.0, deadline=3.0)], 10.0, CloseReason.DEADLINE),
    ],
)
def test_each_limit_closes_the_window(members: list[Member], now: float, expected: CloseReason) -> None:
    assert reason(*members, now=now) is expected


def test_the_oldest_job_waits_no_longer_than_the_limit() -> None:
    members = [Member(1, 10.0), Member(1, 11.9)]

    assert reason(*members, now=11.99, idle=True) is None
    assert reason(*members, now=12.0, idle=True) is CloseReason.MAX_WAIT
    # Unless company was there just now: it is taken along at once.
    assert reason(*members, now=12.0, idle=False) is None


def test_shutdown_closes_before_any_other_reason() -> None:
    assert reason(*[Member(100, 0.0)] * 3, stopping=True) is CloseReason.SHUTDOWN


def test_only_a_hasty_window_closes_when_nothing_more_is_waiting() -> None:
    hasty = WindowLimits(max_jobs=3, max_tokens=100, max_wait_seconds=2.0, close_when_idle=True)

    assert reason(Member(1, 10.0), limits=hasty, idle=True) is CloseReason.IDLE
    assert reason(Member(1, 10.0), limits=hasty, idle=False) is None
    assert reason(Member(1, 10.0), limits=LIMITS, idle=True) is None


def test_the_oldest_member_and_the_nearest_deadline_set_the_clock() -> None:
    members = [Member(1, 10.0), Member(1, 11.0, deadline=11.5), Member(1, 9.5, deadline=99.0)]

    assert wait_left(members[:1], LIMITS, now=11.0) == 1.0
    assert wait_left(members[::2], LIMITS, now=11.0) == 0.5
    assert wait_left(members[:2], LIMITS, now=11.0) == 0.5


def test_limits_are_cut_to_the_room_of_the_engine() -> None:
    assert LIMITS.within(seats=2, cache_tokens=1000) == WindowLimits(2, 100, 2.0)
    assert LIMITS.within(seats=9, cache_tokens=50) == WindowLimits(3, 50, 2.0)


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        ([], 1),
        ([10], 2),
        ([40], 1),
        ([10, 10], 1),
        ([0], 2),
        ([0, 0], 1),
        ([99], 1),
        ([100], 1),
        ([1, 1, 1], 0),
        ([2**31], 1),
    ],
)
def test_as_many_more_are_wanted_as_seats_and_tokens_allow(costs: list[int], expected: int) -> None:
    assert num_wanted([Member(cost, 10.0) for cost in costs], LIMITS) == expected


def test_nothing_is_wanted_without_a_seat() -> None:
    assert num_wanted([], LIMITS.within(seats=0, cache_tokens=100)) == 0


def test_of_ten_jobs_six_are_interactive_three_standard_and_one_bulk() -> None:
    expected = {Lane.INTERACTIVE: 6, Lane.STANDARD: 3, Lane.BULK: 1}

    assert all(lane_shares(10, turn=turn) == expected for turn in range(25))


def test_windows_of_one_serve_every_lane() -> None:
    served = [lane for turn in range(10) for lane in lane_shares(1, turn=turn)]

    assert {lane: served.count(lane) for lane in Lane} == {
        Lane.INTERACTIVE: 6,
        Lane.STANDARD: 3,
        Lane.BULK: 1,
    }


def test_costs_are_summed() -> None:
    assert total_tokens([Member(3, 0.0), Member(0, 0.0), Member(7, 0.0)]) == 10
