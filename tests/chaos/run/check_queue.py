"""What is left in Redis when all jobs have ended: nothing."""

from __future__ import annotations

from typing import Any, NamedTuple

import redis

from models.queue import GROUP, JobQueue
from models.tables.job import Lane
from tests.chaos.run.breach import Breach, Kind
from tests.chaos.run.installation import MODEL, NAMESPACE
from tests.services.redis_server import RedisServer

_NUM_SHOWN = 20


class LeftOver(NamedTuple):
    """Entries of one stream: all of them, and those that a consumer has not acknowledged."""

    stream: str
    entries: list[Any]
    pending: list[Any]


def left_over(server: RedisServer) -> list[LeftOver]:
    """The streams that hold anything."""
    queue = JobQueue(server.url, NAMESPACE)
    streams = [queue.stream(MODEL, lane) for lane in Lane]
    queue.close()
    with server.client() as client:
        found = [LeftOver(stream, _entries(client, stream), _pending(client, stream)) for stream in streams]
    return [stream for stream in found if stream.entries or stream.pending]


def _entries(client: redis.Redis, stream: str) -> list[Any]:
    found: Any = client.xrange(stream, count=_NUM_SHOWN)
    return list(found)


def _pending(client: redis.Redis, stream: str) -> list[Any]:
    try:
        return list(client.xpending_range(stream, GROUP, "-", "+", _NUM_SHOWN))
    except redis.ResponseError:
        # No stream, or no group yet: nobody has read from it.
        return []


def check_queue(server: RedisServer) -> list[Breach]:
    """Find entries that outlived their jobs."""
    return [
        Breach(Kind.LEFT_OVER, f"{stream} is not empty", [f"entries {entries}", f"pending {pending}"])
        for stream, entries, pending in left_over(server)
    ]
