from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from models.errors import QueueUnavailable, StartupError
from models.queue import JobQueue, Ticket
from models.tables.job import Lane
from tests.services.redis_server import RedisServer

MODEL = "org/model:7b"


@pytest.fixture
def redis_url(any_redis_url: str) -> str:
    return any_redis_url


def tickets(*names: str) -> list[Ticket]:
    return [Ticket(name, 10) for name in names]


def test_lanes_and_models_are_apart(queue: JobQueue) -> None:
    queue.append(MODEL, Lane.BULK, tickets("a", "b"))

    assert [queue.depth(MODEL, lane) for lane in Lane] == [0, 0, 2]
    assert queue.depth("another", Lane.BULK) == 0
    assert queue.job_ids(MODEL, Lane.BULK) == {"a", "b"}


def test_namespaces_are_apart(queue: JobQueue, any_redis_url: str) -> None:
    other = JobQueue(any_redis_url, "other")
    other.append(MODEL, Lane.BULK, tickets("a"))

    assert (queue.depth(MODEL, Lane.BULK), other.depth(MODEL, Lane.BULK)) == (0, 1)
    other.close()


def test_all_ids_are_found_over_many_pages(queue: JobQueue) -> None:
    names = [f"job_{number}" for number in range(2345)]

    queue.append(MODEL, Lane.BULK, tickets(*names))

    assert queue.job_ids(MODEL, Lane.BULK) == set(names)


def test_publishing_nothing_makes_no_stream(queue: JobQueue, any_redis_server: RedisServer) -> None:
    queue.append(MODEL, Lane.BULK, [])

    with any_redis_server.client() as client:
        assert client.dbsize() == 0


def test_only_ids_cost_and_deadline_reach_redis(queue: JobQueue, any_redis_server: RedisServer) -> None:
    deadline_at = datetime(2026, 1, 31, 12, tzinfo=UTC) + timedelta(microseconds=123456)
    queue.append(MODEL, Lane.STANDARD, [Ticket("job_1", 7), Ticket("job_2", 8, deadline_at)])

    with any_redis_server.client() as client:
        entries = client.xrange("{test:org/model:7b}:s:standard")

    assert [fields for _, fields in entries] == [
        {"r": "job_1", "c": "7"},
        {"r": "job_2", "c": "8", "d": "1769860800123456"},
    ]


def test_an_epoch_begins_once_until_redis_forgets(queue: JobQueue, any_redis_server: RedisServer) -> None:
    begun = [queue.begin_epoch(MODEL), queue.begin_epoch(MODEL), queue.begin_epoch("another")]
    any_redis_server.flush()

    assert begun == [True, False, True]
    assert queue.begin_epoch(MODEL) is True


def test_a_group_can_be_made_twice(queue: JobQueue) -> None:
    queue.ensure_group(MODEL, Lane.BULK)
    queue.ensure_group(MODEL, Lane.BULK)

    assert queue.depth(MODEL, Lane.BULK) == 0


def test_a_full_redis_counts_as_away(queue: JobQueue, any_redis_server: RedisServer) -> None:
    with any_redis_server.client() as client:
        client.config_set("maxmemory", 1)
        try:
            with pytest.raises(QueueUnavailable, match="memory"):
                queue.append(MODEL, Lane.BULK, tickets("a"))
        finally:
            client.config_set("maxmemory", 0)


def test_a_redis_that_is_away_is_named_and_its_return_noticed(
    queue: JobQueue, any_redis_server: RedisServer
) -> None:
    assert queue.depth(MODEL, Lane.BULK) == 0
    any_redis_server.kill()
    try:
        with pytest.raises(QueueUnavailable, match="Redis does not answer"):
            queue.depth(MODEL, Lane.BULK)
        assert queue.health().answers is False
    finally:
        any_redis_server.start_again()

    assert queue.depth(MODEL, Lane.BULK) == 0
    assert queue.health().answers is True


def test_a_bad_url_is_a_startup_error() -> None:
    with pytest.raises(StartupError, match="Redis URL"):
        JobQueue("http://localhost", "test")


@pytest.mark.parametrize(
    ("fields", "cost_tokens", "year"),
    [
        ({"c": "7", "d": "253402300799999999"}, 7, 9999),
        ({"c": "7", "d": "999999999999999999"}, 7, None),
        ({"c": "7", "d": "9" * 5000}, 7, None),
        ({"c": "9" * 5000, "d": "soon"}, 0, None),
        ({"c": "-1", "d": "\u0661"}, 0, None),
        ({}, 0, None),
    ],
)
def test_whatever_an_entry_holds_a_ticket_can_be_read(
    fields: dict[str, str], cost_tokens: int, year: int | None
) -> None:
    ticket = Ticket.from_fields({"r": "job_1", **fields})

    assert (ticket.job_id, ticket.cost_tokens) == ("job_1", cost_tokens)
    assert (ticket.deadline_at and ticket.deadline_at.year) == year
    assert ticket.deadline_at is None or _as_redis_returns(ticket) == ticket


def _as_redis_returns(ticket: Ticket) -> Ticket:
    return Ticket.from_fields({name: str(value) for name, value in ticket.as_fields().items()})
