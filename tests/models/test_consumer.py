from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from models.consumer import Consumer, Entry
from models.errors import QueueUnavailable
from models.queue import GROUP, JobQueue, Ticket
from models.tables.job import Lane
from tests.services.redis_server import RedisServer

MODEL = "tiny"
ALL = dict.fromkeys(Lane, 10)

MakeConsumer = Callable[[str], Consumer]


@pytest.fixture
def redis_url(any_redis_url: str) -> str:
    return any_redis_url


@pytest.fixture
def consumer(queue: JobQueue, redis_url: str) -> Iterator[MakeConsumer]:
    """Makes consumers by name."""
    with ExitStack() as stack:

        def make(name: str) -> Consumer:
            made = Consumer(queue, redis_url, model=MODEL, name=name)
            stack.callback(made.close)
            return made

        for lane in Lane:
            queue.ensure_group(MODEL, lane)
        yield make


def fill(queue: JobQueue, *names: str, lane: Lane = Lane.STANDARD) -> None:
    queue.append(MODEL, lane, [Ticket(name, 10) for name in names])


def names_of(entries: list[Entry]) -> list[str]:
    return [entry.ticket.job_id for entry in entries]


def pending(server: RedisServer, queue: JobQueue) -> list[tuple[str, int]]:
    """Owner and delivery count of what is pending in the standard lane."""
    with server.client() as client:
        rows: Any = client.xpending_range(queue.stream(MODEL, Lane.STANDARD), GROUP, "-", "+", 100)
    return [(row["consumer"], row["times_delivered"]) for row in rows]


def test_each_lane_gives_as_many_as_wanted(queue: JobQueue, consumer: MakeConsumer) -> None:
    fill(queue, "a", "b", "c")
    fill(queue, "d", "e", lane=Lane.INTERACTIVE)
    reader = consumer("w1")

    entries = reader.read({Lane.INTERACTIVE: 1, Lane.STANDARD: 2, Lane.BULK: 0})

    assert [(entry.lane, entry.ticket) for entry in entries] == [
        (Lane.INTERACTIVE, Ticket("d", 10)),
        (Lane.STANDARD, Ticket("a", 10)),
        (Lane.STANDARD, Ticket("b", 10)),
    ]
    assert names_of(reader.read(ALL)) == ["e", "c"]
    assert reader.read(ALL) == []


def test_two_consumers_share(queue: JobQueue, consumer: MakeConsumer) -> None:
    fill(queue, "a", "b")
    first, second = consumer("w1"), consumer("w2")

    assert names_of(first.read({Lane.STANDARD: 1})) == ["a"]
    assert names_of(second.read(ALL)) == ["b"]


def test_a_wait_without_work_ends_in_time_and_empty(consumer: MakeConsumer) -> None:
    reader = consumer("w1")

    begin = time.monotonic()
    entries = reader.read(ALL, block_seconds=0.3)

    assert entries == []
    assert 0.25 < time.monotonic() - begin < 60


def test_a_wait_ends_with_the_first_entry(queue: JobQueue, consumer: MakeConsumer) -> None:
    reader = consumer("w1")
    sender = threading.Timer(0.1, fill, [queue, "a", "b"])
    sender.start()

    entries = reader.read(ALL, block_seconds=2.0)
    sender.join()

    assert names_of(entries) == ["a"]


def test_wanting_nothing_gets_nothing(queue: JobQueue, consumer: MakeConsumer) -> None:
    fill(queue, "a")

    assert consumer("w1").read(dict.fromkeys(Lane, 0), block_seconds=2.0) == []
    assert consumer("w1").read({}) == []


def test_what_is_acknowledged_is_gone(
    queue: JobQueue, consumer: MakeConsumer, any_redis_server: RedisServer
) -> None:
    fill(queue, "a", "b")
    reader = consumer("w1")
    first, second = reader.read(ALL)

    reader.acknowledge([first])
    reader.acknowledge([first])

    assert queue.job_ids(MODEL, Lane.STANDARD) == {"b"}
    assert pending(any_redis_server, queue) == [("w1", 1)]
    reader.acknowledge([second])
    assert queue.depth(MODEL, Lane.STANDARD) == 0


def test_nobody_acknowledges_for_another(
    queue: JobQueue, consumer: MakeConsumer, any_redis_server: RedisServer
) -> None:
    fill(queue, "a")
    stale, owner = consumer("w1"), consumer("w2")
    entries = stale.read(ALL)
    assert owner.reclaim(idle_seconds=0) == entries

    stale.acknowledge(entries)

    assert queue.depth(MODEL, Lane.STANDARD) == 1
    assert [name for name, _ in pending(any_redis_server, queue)] == ["w2"]


def test_renewing_keeps_ones_own_and_steals_nothing_back(
    queue: JobQueue, consumer: MakeConsumer, any_redis_server: RedisServer
) -> None:
    fill(queue, "a", "b")
    first, second = consumer("w1"), consumer("w2")
    kept, lost = first.read(ALL)
    with any_redis_server.client() as client:
        client.xclaim(queue.stream(MODEL, Lane.STANDARD), GROUP, "w2", 0, [lost.entry_id])

    assert first.renew([kept, lost]) == {kept.entry_id}

    assert pending(any_redis_server, queue) == [("w1", 1), ("w2", 2)]
    assert second.renew([kept, lost]) == {lost.entry_id}


def test_only_what_lies_idle_is_reclaimed(
    queue: JobQueue, consumer: MakeConsumer, any_redis_server: RedisServer
) -> None:
    fill(queue, "idle", "renewed", "unread")
    dead, alive = consumer("w1"), consumer("w2")
    idle, renewed = dead.read({Lane.STANDARD: 2})
    with any_redis_server.client() as client:
        stream = queue.stream(MODEL, Lane.STANDARD)
        client.xclaim(stream, GROUP, "w1", 0, [idle.entry_id, renewed.entry_id], idle=60_000)
    dead.renew([renewed])

    assert alive.reclaim(idle_seconds=30) == [idle]
    assert alive.reclaim(idle_seconds=30) == []
    assert names_of(alive.read(ALL)) == ["unread"]


def test_what_is_pending_under_a_name_that_is_gone_is_taken_over_at_once(
    queue: JobQueue, consumer: MakeConsumer, any_redis_server: RedisServer
) -> None:
    fill(queue, "a", "b")
    fill(queue, "c", lane=Lane.BULK)
    dead, alive, taker = consumer("dead"), consumer("alive"), consumer("w1")
    lost = [*dead.read({Lane.STANDARD: 1}), *dead.read({Lane.BULK: 1})]
    kept = alive.read({Lane.STANDARD: 1})

    assert taker.others() == {"dead", "alive"}
    assert taker.reclaim(idle_seconds=3600) == []
    assert taker.take_from({"dead", "never there"}) == lost

    assert taker.others() == {"alive"}
    assert alive.renew(kept) == {kept[0].entry_id}
    taker.acknowledge(lost)
    assert pending(any_redis_server, queue) == [("alive", 1)]


def test_nobody_is_another_where_there_is_no_stream(consumer: MakeConsumer) -> None:
    alone = consumer("w1")

    assert alone.others() == set()
    assert alone.take_from({"dead"}) == []


def test_many_entries_of_the_dead_are_reclaimed_in_order(queue: JobQueue, consumer: MakeConsumer) -> None:
    names = [f"job_{number}" for number in range(250)]
    fill(queue, *names)
    consumer("w1").read({Lane.STANDARD: 250})

    assert names_of(consumer("w2").reclaim(idle_seconds=0)) == names


def test_an_entry_that_was_deleted_while_pending_is_dropped(
    queue: JobQueue, consumer: MakeConsumer, any_redis_server: RedisServer
) -> None:
    fill(queue, "a", "b")
    deleted, kept = consumer("w1").read(ALL)
    with any_redis_server.client() as client:
        client.xdel(queue.stream(MODEL, Lane.STANDARD), deleted.entry_id)
    heir = consumer("w2")

    assert heir.reclaim(idle_seconds=0) == [kept]
    assert heir.renew([deleted, kept]) == {kept.entry_id}
    heir.acknowledge([deleted, kept])
    assert pending(any_redis_server, queue) == []


@pytest.mark.parametrize("block_seconds", [0.0, 0.05])
def test_groups_come_back_after_redis_lost_everything(
    queue: JobQueue, consumer: MakeConsumer, any_redis_server: RedisServer, block_seconds: float
) -> None:
    fill(queue, "a")
    reader = consumer("w1")
    lost = reader.read(ALL)
    any_redis_server.flush()

    assert reader.read(ALL, block_seconds=block_seconds) == []
    fill(queue, "b")
    assert names_of(reader.read(ALL, block_seconds=block_seconds)) == ["b"]
    assert reader.renew(lost) == set()
    reader.acknowledge(lost)


def test_a_consumer_that_waits_while_redis_loses_everything_goes_on(
    queue: JobQueue, consumer: MakeConsumer, any_redis_server: RedisServer
) -> None:
    reader = consumer("w1")
    eraser = threading.Timer(0.1, any_redis_server.flush)
    eraser.start()

    entries = reader.read(ALL, block_seconds=1.0)
    eraser.join()
    fill(queue, "a")

    assert entries == []
    assert names_of(reader.read(ALL)) == ["a"]


def test_work_on_a_redis_that_lost_its_groups_does_not_fail(
    queue: JobQueue, consumer: MakeConsumer, any_redis_server: RedisServer
) -> None:
    fill(queue, "a")
    worker = consumer("w1")
    entries = worker.read(ALL)
    any_redis_server.flush()
    fill(queue, "b")

    assert worker.renew(entries) == set()
    worker.acknowledge(entries)

    assert worker.reclaim(idle_seconds=0) == []
    assert names_of(worker.read(ALL)) == ["b"]


def test_an_entry_that_is_not_ours_is_skipped(
    queue: JobQueue, consumer: MakeConsumer, any_redis_server: RedisServer
) -> None:
    with any_redis_server.client() as client:
        client.xadd(queue.stream(MODEL, Lane.STANDARD), {"x": "y"})
        client.xadd(queue.stream(MODEL, Lane.STANDARD), {"r": "a", "c": "many"})

    assert [entry.ticket for entry in consumer("w1").read(ALL)] == [Ticket("a", 0)]


def test_a_redis_that_is_away_is_named_and_its_return_noticed(
    queue: JobQueue, consumer: MakeConsumer, any_redis_server: RedisServer
) -> None:
    reader = consumer("w1")
    any_redis_server.kill()
    try:
        with pytest.raises(QueueUnavailable):
            reader.read(ALL, block_seconds=1.0)
        with pytest.raises(QueueUnavailable):
            reader.reclaim(idle_seconds=0)
    finally:
        any_redis_server.start_again()

    assert reader.read(ALL) == []
    fill(queue, "a")
    assert names_of(reader.read(ALL)) == ["a"]


def test_a_consumer_that_leaves_is_forgotten_unless_something_is_pending(
    any_redis_server: RedisServer, queue: JobQueue, consumer: MakeConsumer
) -> None:
    fill(queue, "a")
    idle, busy = consumer("idle"), consumer("busy")
    idle.read({Lane.BULK: 1})
    taken = busy.read(ALL)

    idle.leave()
    busy.leave()

    assert pending(any_redis_server, queue) == [("busy", 1)]
    busy.acknowledge(taken)
    busy.leave()
    with any_redis_server.client() as client:
        for lane in Lane:
            names: Any = client.xinfo_consumers(queue.stream(MODEL, lane), GROUP)
            assert names == []
