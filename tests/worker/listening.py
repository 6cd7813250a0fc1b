"""Hearing the hints that the worker's stages send."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from models.signals import Listener, Signal
from tests.services.redis_server import RedisServer
from tests.worker.waiting import eventually


@contextmanager
def listening(
    server: RedisServer, signal: Signal, on_jobs: Callable[[Sequence[str]], None]
) -> Iterator[None]:
    """Call back with the jobs of each hint of this kind; none that is sent inside is missed."""
    listener = Listener(server.url, "test", signal, on_jobs)
    listener.start()
    try:
        with server.client() as client:
            eventually(lambda: client.pubsub_numsub(f"test:{signal}")[0][1])
        yield
    finally:
        listener.stop()
