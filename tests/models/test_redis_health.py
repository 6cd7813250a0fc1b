from __future__ import annotations

from collections.abc import Iterator

import pytest

from models.queue import JobQueue
from models.redis_health import RedisHealth
from tests.services.redis_server import RedisServer


@pytest.fixture
def health(any_redis_server: RedisServer) -> Iterator[JobQueue]:
    queue = JobQueue(any_redis_server.url, "test")
    yield queue
    queue.close()
    with any_redis_server.client() as client:
        client.config_set("maxmemory", 0)
        client.config_set("maxmemory-policy", "noeviction")


@pytest.mark.parametrize(
    ("policy", "evicts_by"),
    [
        ("noeviction", None),
        # Keys that expire are none of the queue's.
        ("volatile-lru", None),
        ("allkeys-lru", "allkeys-lru"),
        ("allkeys-random", "allkeys-random"),
    ],
)
def test_a_policy_that_may_evict_the_queue_is_named(
    health: JobQueue, any_redis_server: RedisServer, policy: str, evicts_by: str | None
) -> None:
    with any_redis_server.client() as client:
        client.config_set("maxmemory-policy", policy)

    found = health.health()

    assert found == RedisHealth(evicts_by=evicts_by)
    assert len(found.faults) == (evicts_by is not None)
    assert all(f"maxmemory-policy is {policy}" in fault for fault in found.faults)


def test_a_full_redis_answers_and_takes_no_writes(health: JobQueue, any_redis_server: RedisServer) -> None:
    with any_redis_server.client() as client:
        client.config_set("maxmemory", 1)
        full = health.health()
        client.config_set("maxmemory", 0)

    assert full.answers is True
    assert "maxmemory" in (full.refusal or "")
    assert len(full.faults) == 1
    assert full.faults[0].startswith("Redis takes no writes: ")
    assert health.health().faults == []


def test_a_redis_that_is_away_does_not_answer() -> None:
    queue = JobQueue("unix:///nowhere/redis.sock", "test")

    assert queue.health() == RedisHealth(answers=False)
    assert queue.health().faults == ["Redis does not answer"]
    queue.close()


def test_what_was_written_for_the_look_goes_by_itself(
    health: JobQueue, any_redis_server: RedisServer
) -> None:
    health.health()

    with any_redis_server.client() as client:
        assert client.keys("*") == ["test:probe"]
        assert 0 < client.ttl("test:probe") <= 60


def test_a_user_that_may_not_see_the_memory_is_served(any_redis_server: RedisServer) -> None:
    with any_redis_server.client() as client:
        client.acl_setuser(
            "headrace", enabled=True, passwords=["+secret"], keys=["*"], commands=["+@all", "-info"]
        )
    queue = JobQueue(any_redis_server.url.replace("unix://", "unix://headrace:secret@"), "test")

    found = queue.health()

    queue.close()
    with any_redis_server.client() as client:
        client.acl_deluser("headrace")
    assert found == RedisHealth()
