from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from models.consumer import Consumer
from models.errors import QueueUnavailable
from models.queue import JobQueue, Ticket
from models.tables.job import Lane
from tests.models.pipeline import MODEL
from tests.models.pipeline import Pipeline as Backlog
from tests.services.redis_server import ValkeyServer
from worker.window import CloseReason, WindowLimits
from worker.window_reader import ClosedWindow, WindowReader

#: Long enough that no test waits for it.
PATIENT = WindowLimits(max_jobs=4, max_tokens=1000, max_wait_seconds=60.0)
BRIEF = WindowLimits(max_jobs=4, max_tokens=1000, max_wait_seconds=0.05)


class Desk:
    """A queue to put jobs into and readers to take them out."""

    def __init__(self, backlog: Backlog) -> None:
        self.queue = backlog.queue
        self.consumer = backlog.consumer()
        self.stopping = threading.Event()
        self._num_put = 0

    def put(self, count: int, *, lane: Lane = Lane.STANDARD, cost_tokens: int = 10) -> list[str]:
        """Publish jobs `job_<lane>_<number>`."""
        first, self._num_put = self._num_put, self._num_put + count
        ids = [f"job_{lane}_{number}" for number in range(first, self._num_put)]
        self.queue.append(MODEL, lane, [Ticket(job_id, cost_tokens) for job_id in ids])
        return ids

    def reader(self, limits: WindowLimits) -> WindowReader:
        return WindowReader(self.consumer, limits, self.stopping)

    def take(self, limits: WindowLimits, *, seats: int = 100, cache_tokens: int = 10**6) -> ClosedWindow:
        window = self.reader(limits).take(seats=seats, cache_tokens=cache_tokens)
        assert window is not None
        return window


@pytest.fixture
def desk(backlog: Backlog) -> Desk:
    return Desk(backlog)


def ids(window: ClosedWindow) -> list[str]:
    return [entry.ticket.job_id for entry in window.entries]


@contextmanager
def later(seconds: float, do: Callable[[], object]) -> Iterator[None]:
    timer = threading.Timer(seconds, do)
    timer.start()
    yield
    timer.join()


def test_closes_by_jobs_and_leaves_the_rest_in_order(desk: Desk) -> None:
    put = desk.put(6)

    first = desk.take(PATIENT)
    second = desk.take(BRIEF)

    assert (ids(first), first.reason) == (put[:4], CloseReason.MAX_JOBS)
    assert (ids(second), second.reason) == (put[4:], CloseReason.MAX_WAIT)


def test_takes_no_more_jobs_than_there_are_seats(desk: Desk) -> None:
    for lane in Lane:
        desk.put(3, lane=lane)

    assert len(desk.take(PATIENT, seats=1).entries) == 1
    assert len(desk.take(PATIENT, seats=3).entries) == 3


def test_closes_by_tokens(desk: Desk) -> None:
    put = desk.put(4, cost_tokens=500)

    window = desk.take(PATIENT)

    assert (ids(window), window.reason) == (put[:2], CloseReason.MAX_TOKENS)


def test_a_first_job_larger_than_the_room_goes_through_alone(desk: Desk) -> None:
    put = desk.put(2, cost_tokens=5000)

    window = desk.take(PATIENT, cache_tokens=100)

    assert (ids(window), window.reason) == (put[:1], CloseReason.MAX_TOKENS)


def test_closes_when_its_oldest_job_has_waited_long_enough(desk: Desk) -> None:
    desk.put(1)

    window = desk.take(BRIEF)

    assert (window.reason, len(window.entries)) == (CloseReason.MAX_WAIT, 1)
    assert window.open_seconds >= 0.05


def test_company_that_comes_in_time_is_taken_along(desk: Desk) -> None:
    desk.put(1)

    with later(0.1, lambda: desk.put(3, lane=Lane.BULK)):
        window = desk.take(PATIENT)

    assert (len(window.entries), window.reason) == (4, CloseReason.MAX_JOBS)


def test_closes_at_the_nearest_deadline(desk: Desk, backlog: Backlog) -> None:
    soon = backlog.time() + timedelta(seconds=0.3)
    desk.queue.append(MODEL, Lane.STANDARD, [Ticket("job_a", 10), Ticket("job_b", 10, soon)])

    window = desk.take(PATIENT)

    assert (ids(window), window.reason) == (["job_a", "job_b"], CloseReason.DEADLINE)


def test_a_hasty_window_closes_as_soon_as_nothing_more_is_there(desk: Desk) -> None:
    desk.put(2)

    window = desk.take(WindowLimits(4, 1000, 60.0, close_when_idle=True))

    assert (len(window.entries), window.reason) == (2, CloseReason.IDLE)


@pytest.mark.parametrize("lane", Lane)
def test_a_window_without_patience_takes_along_all_that_is_there(desk: Desk, lane: Lane) -> None:
    put = desk.put(3, lane=lane)

    window = desk.take(WindowLimits(4, 1000, 0.0, close_when_idle=True))

    assert (ids(window), window.reason) == (put, CloseReason.IDLE)


def test_closes_at_shutdown(desk: Desk) -> None:
    desk.put(1)
    desk.stopping.set()

    assert desk.take(PATIENT).reason is CloseReason.SHUTDOWN


def test_waits_for_a_first_job(desk: Desk) -> None:
    with later(0.1, lambda: desk.put(1)):
        window = desk.take(BRIEF)

    assert len(window.entries) == 1


def test_gives_up_after_a_while_without_a_job(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.window_reader.MAX_BLOCK_SECONDS", 0.2)
    since = time.monotonic()

    assert desk.reader(BRIEF).take(seats=1, cache_tokens=100) is None

    assert time.monotonic() - since >= 0.19


def test_windows_of_one_serve_every_lane_by_its_turns(desk: Desk) -> None:
    for lane in Lane:
        desk.put(20, lane=lane)
    reader = desk.reader(PATIENT)

    windows = [reader.take(seats=1, cache_tokens=1000) for _ in range(10)]

    lanes = [window.entries[0].lane for window in windows if window is not None]
    assert {lane: lanes.count(lane) for lane in Lane} == {"interactive": 6, "standard": 3, "bulk": 1}


def test_seats_that_a_lane_leaves_are_taken_by_others(desk: Desk) -> None:
    desk.put(1, lane=Lane.INTERACTIVE)
    desk.put(20, lane=Lane.BULK)

    window = desk.take(WindowLimits(12, 10**6, 60.0))

    lanes = [entry.lane for entry in window.entries]
    assert (lanes.count(Lane.INTERACTIVE), lanes.count(Lane.BULK)) == (1, 11)


def test_two_readers_never_take_the_same_job(desk: Desk, backlog: Backlog) -> None:
    put = {job_id for lane in Lane for job_id in desk.put(40, lane=lane)}
    taken: list[str] = []

    def take_all(consumer: Consumer) -> None:
        reader = WindowReader(consumer, BRIEF, desk.stopping)
        for _ in range(15):
            window = reader.take(seats=4, cache_tokens=1000)
            taken.extend(ids(window) if window else [])

    threads = [threading.Thread(target=take_all, args=[backlog.consumer(name)]) for name in ("w2", "w3")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(taken) == sorted(put)


@pytest.fixture
def own_server() -> Iterator[ValkeyServer]:
    """A server that a test may kill."""
    with ValkeyServer() as server:
        yield server


def test_a_broker_lost_within_a_window_takes_nothing_away(own_server: ValkeyServer) -> None:
    queue = JobQueue(own_server.url, "test")
    consumer = Consumer(queue, own_server.url, model=MODEL, name="w1")
    for lane in Lane:
        queue.ensure_group(MODEL, lane)
    queue.append(MODEL, Lane.STANDARD, [Ticket("job_a", 10), Ticket("job_b", 10)])
    reader = WindowReader(consumer, WindowLimits(4, 1000, 1.0), threading.Event())

    with later(0.3, own_server.kill):
        window = reader.take(seats=4, cache_tokens=1000)
    with pytest.raises(QueueUnavailable):
        reader.take(seats=4, cache_tokens=1000)

    assert window is not None
    assert (ids(window), window.reason) == (["job_a", "job_b"], CloseReason.MAX_WAIT)
    assert window.open_seconds < 60
    consumer.close()
    queue.close()


def test_lanes_without_room_are_left_alone(desk: Desk) -> None:
    put = {lane: desk.put(3, lane=lane) for lane in Lane}
    reader = desk.reader(PATIENT)

    window = reader.take(seats=4, cache_tokens=1000, lanes=(Lane.INTERACTIVE,), wait=False)
    nothing = reader.take(seats=4, cache_tokens=1000, lanes=(Lane.INTERACTIVE,), wait=False)

    assert window is not None
    assert (ids(window), window.reason) == (put[Lane.INTERACTIVE], CloseReason.IDLE)
    assert nothing is None
    assert {desk.queue.depth(MODEL, lane) for lane in Lane} == {3}
    both = reader.take(seats=4, cache_tokens=1000, lanes=(Lane.INTERACTIVE, Lane.STANDARD), wait=False)
    assert both is not None
    assert ids(both) == put[Lane.STANDARD]


def test_company_comes_from_the_lanes_with_room_alone(desk: Desk) -> None:
    desk.put(1, lane=Lane.INTERACTIVE)
    desk.put(3, lane=Lane.BULK)

    window = desk.reader(BRIEF).take(seats=4, cache_tokens=1000, lanes=(Lane.INTERACTIVE, Lane.STANDARD))

    assert window is not None
    assert [entry.lane for entry in window.entries] == [Lane.INTERACTIVE]
