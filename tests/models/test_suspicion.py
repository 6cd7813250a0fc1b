from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.suspicion import Suspicion, after_crash, blamed, choose_group


@pytest.mark.parametrize(("num_in_flight", "isolation"), [(64, 32), (33, 16), (32, 16), (3, 1), (2, 1)])
def test_a_crash_halves_the_group(num_in_flight: int, isolation: int) -> None:
    assert after_crash(0, num_in_flight=num_in_flight) == Suspicion(isolation, 0)


def test_the_third_crash_alone_is_the_last() -> None:
    assert after_crash(0, num_in_flight=1) == Suspicion(1, 1)
    assert after_crash(1, num_in_flight=1) == Suspicion(1, 2)
    assert after_crash(2, num_in_flight=1) is None


def test_a_crash_in_company_is_none_alone() -> None:
    assert after_crash(2, num_in_flight=2) == Suspicion(1, 2)


def test_suspects_that_waited_for_the_free_to_leave_are_not_blamed() -> None:
    assert blamed({"a": 0, "b": 4, "c": 0}) == {"a", "c"}
    assert blamed({"b": 4, "c": 4}) == {"b", "c"}
    assert blamed({}) == set()


def test_a_group_is_of_one_limit_and_no_larger() -> None:
    waiting = [("a", 2), ("b", 4), ("c", 2), ("d", 2), ("e", 4)]

    assert choose_group(waiting, max_jobs=100) == ["a", "c"]
    assert choose_group(waiting, max_jobs=1) == ["a"]
    assert choose_group(waiting[1:2] + waiting[4:], max_jobs=100) == ["b", "e"]
    assert choose_group([], max_jobs=100) == []


@given(
    num_jobs=st.integers(1, 64),
    num_poisonous=st.integers(1, 3),
    max_jobs=st.sampled_from([1, 5, 32, 64]),
    seed=st.integers(0, 2**32),
)
def test_poison_is_found_in_few_crashes_and_nobody_else_fails(
    num_jobs: int, num_poisonous: int, max_jobs: int, seed: int
) -> None:
    """Whatever order suspects come in, and though several poisonous ones hide behind each other."""
    chance = random.Random(seed)
    jobs = list(range(num_jobs))
    poisonous = set(chance.sample(jobs, min(num_poisonous, num_jobs)))
    #: Group limit and crashes alone; none for the free.
    waiting: dict[int, Suspicion | None] = dict.fromkeys(jobs)
    succeeded: set[int] = set()
    failed: set[int] = set()
    num_crashes = dict.fromkeys(jobs, 0)
    while waiting:
        order = chance.sample(sorted(waiting), len(waiting))
        suspects = [(f"{job}", found.isolation) for job in order if (found := waiting[job]) is not None]
        free = [job for job in order if waiting[job] is None]
        if suspects and (chance.random() < 0.5 or not free):
            group = [int(job) for job in choose_group(suspects, max_jobs=max_jobs)]
        else:
            group = free[:max_jobs]
        known = [(job, waiting.pop(job)) for job in group]
        if poisonous.isdisjoint(group):
            succeeded.update(group)
            continue
        for job, before in known:
            num_crashes[job] += 1
            after = after_crash(before.crashes_alone if before else 0, num_in_flight=len(group))
            if after is None:
                failed.add(job)
                continue
            if before is not None:
                assert after.isolation < before.isolation or after.isolation == 1
            waiting[job] = after

    assert failed == poisonous
    assert succeeded == set(jobs) - poisonous
    most = math.floor(math.log2(min(num_jobs, max_jobs))) + 3
    assert max(num_crashes.values()) <= most
