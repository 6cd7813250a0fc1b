from __future__ import annotations

import threading
from pathlib import Path

import pytest

from engine.protocol import EngineRequest, Room
from tests.engine.completion import build_tiny_engine
from tests.worker.job_examples import claimed
from worker.admission import Admission
from worker.events import ReadyJob


def test_room_is_given_at_once_where_there_is_some() -> None:
    assert Admission(Room(4, 400)).wait(0) == Room(4, 400)


def test_jobs_on_their_way_take_seats_and_cache() -> None:
    admission = Admission(Room(4, 400))

    admission.reserve([Room(1, 100), Room(1, 50)])

    assert admission.wait(0) == Room(2, 250)


def test_choices_take_a_seat_each() -> None:
    """A job of many choices counts as one, and those behind it find the engine full."""
    admission = Admission(Room(8, 400))

    admission.reserve([Room(3, 90), Room(1, 10)])
    before = admission.wait(0)
    admission.settle(Room(5, 310), [Room(3, 90)])

    assert before == admission.wait(0) == Room(4, 300)
    admission.reserve([Room(16, 10)])
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
    admission = Admission(Room(4, 400))
    admission.reserve([Room(1, 100), Room(1, 50), Room(1, 50)])

    admission.settle(Room(2, 250), [Room(1, 100), Room(1, 50)])

    assert admission.wait(0) == Room(1, 200)


def test_there_is_no_room_without_a_seat_or_without_cache() -> None:
    assert Admission(Room(0, 400)).wait(0) is None
    assert Admission(Room(4, 0)).wait(0) is None


def test_a_job_larger_than_the_cache_closes_the_door_until_it_is_through() -> None:
    admission = Admission(Room(4, 400))

    admission.reserve([Room(1, 5000)])
    during = admission.wait(0)
    admission.settle(Room(4, 400), [Room(1, 5000)])

    assert during is None
    assert admission.wait(0) == Room(4, 400)


def test_a_waiting_thread_is_woken_by_room() -> None:
    admission = Admission(Room(0, 0))
    waits, found = threading.Event(), []

    def wait() -> None:
        waits.set()
        found.append(admission.wait(30))

    thread = threading.Thread(target=wait)
    thread.start()
    waits.wait(10)
    admission.settle(Room(1, 10))
    thread.join(10)

    assert found == [Room(1, 10)]


def test_two_threads_keep_one_account() -> None:
    admission = Admission(Room(1000, 10**6))
    together = threading.Barrier(2)

    def feed() -> None:
        together.wait(10)
        for cost in range(1, 401):
            admission.reserve([Room(1, cost)])

    def settle() -> None:
        together.wait(10)
        for _ in range(400):
            admission.settle(Room(1000, 10**6))

    threads = [threading.Thread(target=feed), threading.Thread(target=settle)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert admission.wait(0) == Room(600, 10**6 - 400 * 401 // 2)
