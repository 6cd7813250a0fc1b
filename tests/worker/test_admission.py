from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import EngineRequest, Room
from models.tables.job import Lane
from tests.engine.completion import build_tiny_engine
from tests.worker.fake_engine import FakeEngine
from tests.worker.job_examples import claimed, open_to_all, ready, same_rooms
from worker.admission import Admission, Opening
from worker.events import ReadyJob
from worker.priority import NO_ROOM, PRIORITIES, rooms_of


def job(id: str, cache_tokens: int, *, lane: Lane = Lane.INTERACTIVE, n: int = 1) -> ReadyJob:
    """A job that needs a seat and so much cache; for `n` choices so many times."""
    return ready(id, num_steps=cache_tokens - 3, lane=lane, n=n)


def test_room_is_given_at_once_where_there_is_some() -> None:
    assert Admission(same_rooms(4, 400)).wait(0) == open_to_all(4, 400)


def test_jobs_on_their_way_take_seats_and_cache() -> None:
    admission = Admission(same_rooms(4, 400))

    admission.reserve(job("a", 100))
    admission.reserve(job("b", 50))

    assert admission.wait(0) == open_to_all(2, 250)


def test_choices_take_a_seat_each() -> None:
    """A job of many choices counts as one, and those behind it find the engine full."""
    admission = Admission(same_rooms(8, 400))
    many = job("many", 30, n=3)

    admission.reserve(many)
    admission.reserve(job("one", 10))
    before = admission.wait(0)
    admission.settle(same_rooms(5, 310), [many])

    assert before == admission.wait(0) == open_to_all(4, 300)
    admission.reserve(job("sixteen", 10, n=16))
    assert admission.wait(0) is None


@pytest.mark.parametrize("n", [1, 3, 16])
def test_what_is_booked_for_a_job_is_what_the_engine_counts(tiny_model: Path, n: int) -> None:
    engine = build_tiny_engine(tiny_model, max_num_seqs=20)
    before = engine.room()
    # Whole blocks of sixteen tokens, since the engine counts in those.
    job = ReadyJob(claimed(), EngineRequest("job_a", range(3, 23), max_tokens=12, n=n))

    engine.add(job.request)

    after = engine.room()
    assert job.need == (before.seats - after.seats, before.cache_tokens - after.cache_tokens) == (n, n * 32)


def test_jobs_that_have_arrived_count_once() -> None:
    admission = Admission(same_rooms(4, 400))
    jobs = [job("a", 100), job("b", 50), job("c", 50)]
    for each in jobs:
        admission.reserve(each)

    admission.settle(same_rooms(2, 250), jobs[:2])

    assert admission.wait(0) == open_to_all(1, 200)


def test_there_is_no_room_without_a_seat_or_without_cache() -> None:
    assert Admission(same_rooms(0, 400)).wait(0) is None
    assert Admission(same_rooms(4, 0)).wait(0) is None
    assert Admission(NO_ROOM).wait(0) is None


def test_a_job_larger_than_the_cache_closes_the_door_until_it_is_through() -> None:
    admission = Admission(same_rooms(4, 400))
    huge = job("huge", 5000)

    admission.reserve(huge)
    during = admission.wait(0)
    admission.settle(same_rooms(4, 400), [huge])

    assert during is None
    assert admission.wait(0) == open_to_all(4, 400)


def test_an_engine_full_of_less_urgent_jobs_is_open_to_the_urgent() -> None:
    rooms = {Lane.INTERACTIVE: Room(4, 400), Lane.STANDARD: Room(1, 90), Lane.BULK: Room(0, 0)}
    admission = Admission(rooms)

    both = admission.wait(0)
    admission.reserve(job("standard", 40, lane=Lane.STANDARD))
    interactive = admission.wait(0)

    assert both == Opening((Lane.INTERACTIVE, Lane.STANDARD), Room(1, 90))
    # What is on its way would yield as well.
    assert interactive == Opening((Lane.INTERACTIVE,), Room(4, 400))
    assert not interactive.is_for_all


@pytest.mark.parametrize("closed", Lane)
def test_what_is_less_urgent_than_a_lane_without_room_has_none(closed: Lane) -> None:
    admission = Admission({**same_rooms(4, 400), closed: Room(0, 400)})

    opening = admission.wait(0)

    urgent = tuple(lane for lane in Lane if PRIORITIES[lane] < PRIORITIES[closed])
    assert (opening.lanes if opening else ()) == urgent


def test_a_waiting_thread_is_woken_by_room() -> None:
    admission = Admission(NO_ROOM)
    waits, found = threading.Event(), []

    def wait() -> None:
        waits.set()
        found.append(admission.wait(60))

    thread = threading.Thread(target=wait)
    thread.start()
    waits.wait(60)
    admission.settle(same_rooms(1, 10))
    thread.join(60)

    assert found == [open_to_all(1, 10)]


def test_a_thread_that_waits_for_the_other_lanes_is_woken_by_their_room() -> None:
    admission = Admission({**NO_ROOM, Lane.INTERACTIVE: Room(4, 400)})
    waits, found = threading.Event(), []

    def wait() -> None:
        waits.set()
        found.append(admission.wait(60, others_seconds=60))

    thread = threading.Thread(target=wait)
    thread.start()
    waits.wait(60)
    admission.settle(same_rooms(1, 10))
    thread.join(60)

    assert found == [open_to_all(1, 10)]


def test_two_threads_keep_one_account() -> None:
    admission = Admission(same_rooms(1000, 10**6))
    together = threading.Barrier(2)

    def feed() -> None:
        together.wait(60)
        for cost in range(4, 404):
            admission.reserve(job(f"job_{cost}", cost))

    def settle() -> None:
        together.wait(60)
        for _ in range(400):
            admission.settle(same_rooms(1000, 10**6))

    threads = [threading.Thread(target=feed), threading.Thread(target=settle)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert admission.wait(0) == open_to_all(600, 10**6 - 200 * 407)


@given(
    seats=st.integers(1, 5),
    moves=st.lists(st.sampled_from([*Lane, "arrive", "step"]), max_size=60),
    num_steps=st.integers(1, 4),
)
def test_of_each_lane_there_are_never_more_than_seats(
    seats: int, moves: list[Lane | str], num_steps: int
) -> None:
    """Whoever takes only what there is room for, of whatever lane, holds a bounded number of leases."""
    engine, on_their_way = FakeEngine(seats=seats), list[ReadyJob]()
    admission = Admission(rooms_of(engine))
    alive: dict[str, Lane] = {}

    for number, move in enumerate(moves):
        opening = admission.wait(0)
        if isinstance(move, Lane):
            if opening is not None and move in opening.lanes:
                taken = ready(f"job_{number}", num_steps=num_steps, lane=move)
                admission.reserve(taken)
                on_their_way.append(taken)
                alive[taken.job.id] = move
        elif move == "arrive":
            for each in on_their_way:
                engine.add(each.request)
            admission.settle(rooms_of(engine), on_their_way)
            on_their_way.clear()
        elif engine.has_work():
            for output in engine.step():
                if output.finish_reason is not None:
                    del alive[output.id]
            admission.settle(rooms_of(engine))
        counts = {lane: list(alive.values()).count(lane) for lane in Lane}
        assert max(counts.values()) <= seats
        # A lane is shut only while as many as there are seats are as urgent.
        opening = admission.wait(0)
        for lane in Lane:
            is_full = sum(counts[each] for each in Lane if PRIORITIES[each] <= PRIORITIES[lane]) >= seats
            assert is_full == (opening is None or lane not in opening.lanes)
