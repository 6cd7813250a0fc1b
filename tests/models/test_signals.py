from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from models.errors import QueueUnavailable
from models.signals import Listener, Signal, Signals
from tests.services.redis_server import RedisServer

_PATIENCE_SECONDS = 60.0


@pytest.fixture
def signals(any_redis_url: str) -> Iterator[Signals]:
    found = Signals(any_redis_url, "test")
    yield found
    found.close()


@contextmanager
def listening(server: RedisServer, signal: Signal) -> Iterator[queue.Queue[Sequence[str]]]:
    heard: queue.Queue[Sequence[str]] = queue.Queue()
    listener = Listener(server.url, "test", signal, heard.put)
    listener.start()
    try:
        await_listener(server, signal)
        yield heard
    finally:
        listener.stop()


def await_listener(server: RedisServer, signal: Signal) -> None:
    """Return when someone listens; Redis itself has no event for that, but an answer to each hint."""
    with server.client() as client, client.pubsub() as probe:
        probe.subscribe("test:probe")
        while client.pubsub_numsub(f"test:{signal}")[0][1] == 0:
            probe.get_message(timeout=0.02)


def test_ids_arrive_together_at_those_who_listen(any_redis_server: RedisServer, signals: Signals) -> None:
    with (
        listening(any_redis_server, Signal.DONE) as done,
        listening(any_redis_server, Signal.CANCEL) as cancel,
    ):
        signals.send(Signal.DONE, ["job_1", "job_2"])
        signals.send(Signal.CANCEL, ["job_3"])

        assert done.get(timeout=_PATIENCE_SECONDS) == ["job_1", "job_2"]
        assert cancel.get(timeout=_PATIENCE_SECONDS) == ["job_3"]

    assert done.empty()
    assert cancel.empty()


def test_nobody_listens(signals: Signals) -> None:
    signals.send(Signal.DONE, ["job_1"])


def test_a_listener_survives_the_death_of_redis(any_redis_server: RedisServer, signals: Signals) -> None:
    with listening(any_redis_server, Signal.DONE) as done:
        any_redis_server.kill()
        with pytest.raises(QueueUnavailable):
            signals.send(Signal.DONE, ["lost"])
        any_redis_server.start_again()
        await_listener(any_redis_server, Signal.DONE)

        signals.send(Signal.DONE, ["job_1"])

        assert done.get(timeout=_PATIENCE_SECONDS) == ["job_1"]
