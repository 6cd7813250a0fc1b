"""Connections to Redis, set up so that no command is ever sent twice behind our back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from models.errors import QueueUnavailable, StartupError

#: How long a command may take. Accept spends it at most twice before it answers without Redis.
COMMAND_SECONDS = 1.0


def connect(url: str, *, timeout_seconds: float = COMMAND_SECONDS) -> redis.Redis:
    """Return a client that answers or raises within `timeout_seconds`.

    Retries are off: a client that repeats XADD after a lost reply makes two entries, and one that
    repeats XREADGROUP receives the next entry while the first is never seen. The protocol is pinned
    because replies have other shapes in RESP 3.
    """
    try:
        return redis.Redis.from_url(
            url,
            protocol=2,
            decode_responses=True,
            socket_timeout=timeout_seconds,
            socket_connect_timeout=COMMAND_SECONDS,
            retry=Retry(NoBackoff(), 0),
            health_check_interval=0,
        )
    except ValueError as error:
        raise StartupError(f"Redis URL is not valid: {error}") from error


@contextmanager
def queue_errors() -> Iterator[None]:
    """Turn whatever redis-py raises into QueueUnavailable."""
    try:
        yield
    except redis.RedisError as error:
        raise QueueUnavailable(f"Redis does not answer: {error}") from error
