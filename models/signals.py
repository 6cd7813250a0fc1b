"""Hints between processes, by Redis publish and subscribe. Losing one costs a moment, never a job.

Channels: `<ns>:done` and `<ns>:cancel`; the payload is job ids, one a line.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

import redis
import structlog
from redis.client import PubSub

from models.redis_client import connect, queue_errors

_log = structlog.get_logger()

#: How long the listener waits for a message before it looks whether it should stop.
_LISTEN_SECONDS = 0.5
#: Pause before it subscribes again after Redis went away.
_RETRY_SECONDS = 1.0


class Signal(StrEnum):
    """What may be told."""

    #: These jobs have finished.
    DONE = "done"
    #: These jobs were cancelled.
    CANCEL = "cancel"


class Signals:
    """Sends hints. Raises QueueUnavailable when Redis is away; callers may ignore it."""

    def __init__(self, url: str, namespace: str) -> None:
        self._redis = connect(url)
        self._namespace = namespace

    def send(self, signal: Signal, job_ids: Iterable[str]) -> None:
        """Tell all listeners about these jobs."""
        with queue_errors():
            self._redis.publish(f"{self._namespace}:{signal}", "\n".join(job_ids))

    def close(self) -> None:
        self._redis.close()


class Listener:
    """Calls back, in a thread of its own, with the job ids of each hint until it is stopped."""

    def __init__(
        self, url: str, namespace: str, signal: Signal, on_jobs: Callable[[Sequence[str]], None]
    ) -> None:
        self._redis = connect(url, timeout_seconds=_LISTEN_SECONDS + 1.0)
        self._channel = f"{namespace}:{signal}"
        self._on_jobs = on_jobs
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"signals-{signal}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for it."""
        self._stopping.set()
        self._thread.join()
        self._redis.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._listen()
            except redis.RedisError as error:
                _log.warning("signals_lost", channel=self._channel, error=str(error))
                self._stopping.wait(_RETRY_SECONDS)

    def _listen(self) -> None:
        with PubSub(self._redis.connection_pool, ignore_subscribe_messages=True) as subscription:
            subscription.subscribe(self._channel)
            while not self._stopping.is_set():
                message = subscription.get_message(timeout=_LISTEN_SECONDS)
                if message is not None:
                    self._on_jobs(str(message["data"]).split("\n"))
