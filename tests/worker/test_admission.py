from __future__ import annotations

import threading

from engine.protocol import Room
from worker.admission import Admission


def test_room_is_given_at_once_where_there_is_some() -> None:
    assert Admission(Room(4, 400)).wait(0) == Room(4, 400)


def test_jobs_on_their_way_take_seats_and_cache() -> None:
    admission = Admission(Room(4, 400))

    admission.reserve([100, 50])

    assert admission.wait(0) == Room(2, 250)


def test_jobs_that_have_arrived_count_once() -> None:
    admission = Admission(Room(4, 400))
    admission.reserve([100, 50, 50])

    admission.settle(Room(2, 250), [100, 50])

    assert admission.wait(0) == Room(1, 200)


def test_there_is_no_room_without_a_seat_or_without_cache() -> None:
    assert Admission(Room(0, 400)).wait(0) is None
    assert Admission(Room(4, 0)).wait(0) is None


def test_a_job_larger_than_the_cache_closes_the_door_until_it_is_through() -> None:
    admission = Admission(Room(4, 400))

    admission.reserve([5000])
    during = admission.wait(0)
    admission.settle(Room(4, 400), [5000])

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
            admission.reserve([cost])

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
