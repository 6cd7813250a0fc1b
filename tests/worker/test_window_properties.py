"""A window taken from a simulated queue, in simulated time, under whatever limits and arrivals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import find, given
from hypothesis import strategies as st

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

COSTS = st.one_of(st.integers(0, 500), st.just(0), st.integers(2**31 - 10, 2**31 - 1))
LIMITS = st.builds(
    WindowLimits,
    max_jobs=st.integers(1, 20),
    max_tokens=st.integers(1, 2000),
    max_wait_seconds=st.floats(0, 5),
    close_when_idle=st.booleans(),
)
DEADLINES = st.none() | st.floats(-5, 20)
#: Jobs with the time since the one before them.
PAUSES = st.just(0.0) | st.floats(0, 3)
ARRIVALS = st.lists(st.tuples(COSTS, PAUSES, DEADLINES), min_size=1, max_size=30)


@dataclass(frozen=True)
class Outcome:
    """How a simulated window went."""

    members: Sequence[Member]
    closed_at: float
    reason: CloseReason
    wanted: Sequence[int]


def simulate(
    limits: WindowLimits, arrivals: Sequence[tuple[int, float, float | None]], *, stops_at: float = 1e9
) -> Outcome:
    """Take a window as a reader does: what is there at once, then wait for the next one or the end."""
    waiting, at = [], 0.0
    for cost, pause, deadline in arrivals:
        at += pause
        waiting.append((at, cost, deadline))
    now, cost, deadline = waiting.pop(0)
    members, idle = [Member(cost, now, deadline)], False
    wanted: list[int] = []
    while True:
        reason = closing_reason(members, limits, now=now, idle=idle, stopping=now >= stops_at)
        if reason is not None:
            return Outcome(members, now, reason, wanted)
        if not idle:
            wanted.append(num_wanted(members, limits))
            taken = [job for job in waiting[: wanted[-1]] if job[0] <= now]
        else:
            now = min(now + wait_left(members, limits, now=now), waiting[0][0] if waiting else 1e9)
            taken = [job for job in waiting[:1] if job[0] <= now]
        members += [Member(cost, now, deadline) for _, cost, deadline in taken]
        del waiting[: len(taken)]
        idle = not taken


@given(LIMITS, ARRIVALS)
def test_a_window_never_has_more_jobs_than_seats(
    limits: WindowLimits, arrivals: list[tuple[int, float, float | None]]
) -> None:
    outcome = simulate(limits, arrivals)

    assert 1 <= len(outcome.members) <= limits.max_jobs
    assert all(count >= 1 for count in outcome.wanted)


@given(LIMITS, ARRIVALS)
def test_nobody_waits_longer_than_the_limit_or_past_a_deadline(
    limits: WindowLimits, arrivals: list[tuple[int, float, float | None]]
) -> None:
    outcome = simulate(limits, arrivals)

    for member in outcome.members:
        assert outcome.closed_at - member.taken_at <= limits.max_wait_seconds + 1e-6
        if member.deadline is not None and outcome.closed_at > member.taken_at:
            assert outcome.closed_at <= max(member.deadline, member.taken_at) + 1e-6


@given(LIMITS, ARRIVALS)
def test_a_window_closes_before_it_is_full_of_tokens_only_for_another_reason(
    limits: WindowLimits, arrivals: list[tuple[int, float, float | None]]
) -> None:
    outcome = simulate(limits, arrivals)

    is_full = total_tokens(outcome.members) >= limits.max_tokens
    if outcome.reason is CloseReason.MAX_TOKENS:
        assert is_full
    elif outcome.reason is not CloseReason.MAX_JOBS:
        assert not is_full


@given(LIMITS, st.lists(COSTS, max_size=20))
def test_no_more_are_wanted_than_there_are_seats(limits: WindowLimits, costs: list[int]) -> None:
    members = [Member(cost, 0.0) for cost in costs[: limits.max_jobs]]

    wanted = num_wanted(members, limits)

    assert 0 <= wanted <= limits.max_jobs - len(members)


@given(LIMITS, st.lists(st.integers(0, 500), min_size=1, max_size=30))
def test_without_its_last_jobs_a_window_is_within_its_tokens(limits: WindowLimits, costs: list[int]) -> None:
    members: list[Member] = []
    for cost in costs:
        if total_tokens(members) < limits.max_tokens:
            members.append(Member(cost, 0.0))

    # Whoever asks for what is wanted and gets jobs of the mean cost ends within the limit.
    more = num_wanted(members, limits)
    mean = total_tokens(members) // len(members)

    if more > 1:
        assert total_tokens(members) + more * mean <= limits.max_tokens


@given(st.integers(0, 2000), st.integers(1, 2**31), ARRIVALS)
def test_a_first_job_larger_than_the_room_goes_through_alone(
    room_tokens: int, excess_tokens: int, arrivals: list[tuple[int, float, float | None]]
) -> None:
    limits = WindowLimits(8, 10**6, 1.0).within(seats=4, cache_tokens=room_tokens)

    outcome = simulate(limits, [(room_tokens + excess_tokens, 0.0, None), *arrivals])

    assert (len(outcome.members), outcome.reason) == (1, CloseReason.MAX_TOKENS)


@given(st.integers(0, 1000), st.integers(1, 1000))
def test_turns_are_shared_six_to_three_to_one_over_any_windows(turn: int, count: int) -> None:
    shares = lane_shares(count, turn=turn)

    assert sum(shares.values()) == count
    for lane, weight in ((Lane.INTERACTIVE, 6), (Lane.STANDARD, 3), (Lane.BULK, 1)):
        assert abs(shares[lane] - count * weight / 10) <= 2


@given(st.lists(st.integers(1, 7), min_size=10, max_size=40))
def test_shares_do_not_depend_on_how_jobs_fall_into_windows(sizes: list[int]) -> None:
    whole = lane_shares(sum(sizes), turn=0)

    apart = sum(
        (lane_shares(size, turn=sum(sizes[:at])) for at, size in enumerate(sizes)), start=type(whole)()
    )

    assert apart == whole


def test_every_reason_occurs() -> None:
    for reason in CloseReason:
        found = find(
            st.tuples(LIMITS, ARRIVALS, st.floats(0, 20)),
            lambda case, wanted=reason: simulate(case[0], case[1], stops_at=case[2]).reason is wanted,  # type: ignore[misc]
        )
        assert found
