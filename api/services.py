"""What a running API holds: its stores, its queue, and those who wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog
from flask import Flask, current_app

from api.waiter import Waiter
from models.accept import Acceptance
from models.batch_acceptance import BatchAcceptance
from models.batch_store import BatchStore
from models.blob_store import BlobStore
from models.database import Database
from models.errors import QueueUnavailable
from models.file_store import FileStore
from models.fleet import Fleet
from models.job_store import JobStore
from models.keys import KeyRing
from models.migrate import require_migrated
from models.presence import require_database
from models.queue import JobQueue
from models.settings import Settings
from models.signals import Signal, Signals
from models.upload_store import UploadStore
from models.watchdog import Watchdog

_log = structlog.get_logger()

_EXTENSION = "headrace"


@dataclass(frozen=True, slots=True)
class Services:
    """Everything that the views work with; one per app."""

    settings: Settings
    #: When this server began to offer its models.
    started_at: datetime
    database: Database
    queue: JobQueue
    acceptance: Acceptance
    batch_acceptance: BatchAcceptance
    jobs: JobStore
    batches: BatchStore
    files: FileStore
    uploads: UploadStore
    keys: KeyRing
    fleet: Fleet
    watchdog: Watchdog
    signals: Signals
    waiter: Waiter

    @classmethod
    def open(cls, settings: Settings) -> Services:
        """Check the database, make sure that there is a key, and connect lazily to Redis.

        No connection and no thread is left open, so that a server may fork afterwards.
        Raises StartupError where Redis is not named, the database does not answer or is not migrated, or the
        place of files is none.
        """
        url = settings.queue_url
        database = Database(settings.sql_url)
        require_database(database)
        require_migrated(database)
        keys = KeyRing(database)
        keys.ensure_first(
            settings.data_dir, settings.api_key.get_secret_value() if settings.api_key else None
        )
        database.close()
        files = FileStore(database, BlobStore(settings.blob_url))
        queue = JobQueue(url, settings.redis_namespace)
        return cls(
            settings=settings,
            started_at=datetime.now(UTC),
            database=database,
            queue=queue,
            acceptance=Acceptance(database, queue, dispatch_depth=settings.dispatch_depth),
            batch_acceptance=BatchAcceptance(database, files),
            jobs=JobStore(database),
            batches=BatchStore(database),
            files=files,
            uploads=UploadStore(database, files),
            keys=keys,
            fleet=Fleet(database),
            watchdog=Watchdog(database, models=settings.allowed_models, stuck_seconds=settings.stuck_seconds),
            signals=Signals(url, settings.redis_namespace),
            waiter=Waiter(
                url,
                settings.redis_namespace,
                max_waiting=max(1, settings.api_threads * 3 // 4),
            ),
        )

    def install(self, app: Flask) -> None:
        """Make these the services of an app."""
        app.extensions[_EXTENSION] = self

    def hint(self, signal: Signal, job_ids: Sequence[str]) -> None:
        """Tell the other processes about these jobs, if Redis is there; they find out anyway, later."""
        try:
            self.signals.send(signal, job_ids)
        except QueueUnavailable as error:
            _log.warning("hint_lost", signal=signal, job_ids=job_ids, error=error.message)

    def close(self) -> None:
        """Stop the waiter's thread and close all connections."""
        self.waiter.close()
        self.signals.close()
        self.queue.close()
        self.database.close()


def services(app: Flask | None = None) -> Services:
    """Return the services of an app, by default of the one that serves this request."""
    found = (app or current_app).extensions[_EXTENSION]
    if not isinstance(found, Services):
        raise TypeError(f"extension {_EXTENSION!r} of the app is not ours")
    return found
