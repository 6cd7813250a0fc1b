"""What background work is connected to, and the chores that it does there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import structlog
from celery.worker import state

from models.backoff import Backoff
from models.batch_work import BatchWork
from models.blob_store import BlobStore
from models.chore_lease import ChoreLeases
from models.consumer import Consumer
from models.dispatch import Dispatcher
from models.errors import ServiceUnavailable
from models.file_retention import FileRetention
from models.file_store import FileStore
from models.fleet import Fleet
from models.presence import require_redis
from models.queue import JobQueue
from models.retention import Retention
from models.settings import Settings
from models.signals import Signals
from models.watchdog import Watchdog
from worker.background.alarm import Alarm
from worker.background.batch_care import NUM_THREADS, BatchCare
from worker.background.batch_steps import batch_steps
from worker.background.schedule import Chore, Schedule
from worker.connections import open_database
from worker.job_care import JobCare

_log = structlog.get_logger()


class House:
    """The database and the queues of all models that are accepted.

    `name` is that of its consumers and leases, new at every start of a process. Raises StartupError that says
    what is missing and how to mend it.
    """

    def __init__(self, settings: Settings, name: str) -> None:
        url = settings.queue_url
        self._settings = settings
        self._name = name
        self._open = ExitStack()
        self._database = open_database(settings)
        self._open.callback(self._database.close)
        require_redis(url)
        self._queue = JobQueue(url, settings.redis_namespace)
        self._open.callback(self._queue.close)
        self._signals = Signals(url, settings.redis_namespace)
        self._open.callback(self._signals.close)
        self._files = FileStore(self._database, BlobStore(settings.blob_url))
        self._cares = {model: self._care_of(model) for model in settings.allowed_models}

    def schedule(self) -> Schedule:
        """Return everything that is to be done here."""
        return Schedule(self._chores(), ChoreLeases(self._database, self._name))

    def close(self) -> None:
        """Leave the queues and close the connections."""
        self._open.close()

    def _chores(self) -> Iterator[Chore]:
        settings = self._settings
        retention = Retention(
            self._database,
            idempotency_seconds=settings.idempotency_seconds,
            history_seconds=settings.history_seconds,
        )
        for model, care in self._cares.items():
            yield Chore(f"dispatch:{model}", 1.0, care.dispatch)
        # These concern the jobs of all models, whichever of them they are asked for.
        care = self._cares[settings.served_name]
        yield Chore("rescue", 2.0, care.rescue)
        yield Chore("expire", 2.0, care.expire)
        yield Chore("forget", 60.0, retention.forget)
        files = FileRetention(self._database, self._files.blobs, history_seconds=settings.history_seconds)
        yield Chore("forget_files", 60.0, files.forget)
        watchdog = Watchdog(
            self._database, models=settings.allowed_models, stuck_seconds=settings.stuck_seconds
        )
        yield Chore("watch", 30.0, Alarm(watchdog, self._queue).look)
        batches = self._batch_care()
        for number in range(1, NUM_THREADS + 1):
            yield Chore(f"batches:{number}", 1.0, batches.go_on)

    def _batch_care(self) -> BatchCare:
        work = BatchWork(self._database)
        steps = batch_steps(work, self._files, self._signals, self._settings, should_stop=_should_stop)
        return BatchCare(work, steps, should_stop=_should_stop)

    def _care_of(self, model: str) -> JobCare:
        settings = self._settings
        consumer = Consumer(self._queue, settings.queue_url, model=model, name=self._name)
        self._open.callback(consumer.close)
        self._open.callback(_leave, consumer)
        return JobCare(
            database=self._database,
            consumer=consumer,
            dispatcher=Dispatcher(self._database, self._queue, model=model, depth=settings.dispatch_depth),
            fleet=Fleet(self._database),
            signals=self._signals,
            lease_seconds=settings.lease_seconds,
            crash_backoff=Backoff(settings.crash_backoff_seconds),
        )


def _should_stop() -> bool:
    # Set when the process is told to stop; Celery then waits for whatever runs.
    return state.should_stop is not None


def _leave(consumer: Consumer) -> None:
    try:
        consumer.leave()
    except ServiceUnavailable as error:
        _log.warning("shutdown_incomplete", error=error.message)
