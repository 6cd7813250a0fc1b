"""What a worker is connected to."""

from __future__ import annotations

from dataclasses import dataclass

from models.consumer import Consumer
from models.database import Database
from models.dispatch import Dispatcher
from models.fleet import Fleet
from models.migrate import require_migrated
from models.presence import require_database, require_redis
from models.queue import JobQueue
from models.settings import Settings
from models.signals import Signals


@dataclass(frozen=True, slots=True)
class Connections:
    """The database and the queue, as one worker sees them."""

    database: Database
    fleet: Fleet
    queue: JobQueue
    consumer: Consumer
    signals: Signals
    dispatcher: Dispatcher

    @classmethod
    def open(cls, settings: Settings, worker_id: str) -> Connections:
        """Connect, or raise StartupError that says what is missing and how to mend it."""
        url, namespace, model = settings.queue_url, settings.redis_namespace, settings.served_name
        database = open_database(settings)
        require_redis(url)
        queue = JobQueue(url, namespace)
        return cls(
            database=database,
            fleet=Fleet(database),
            queue=queue,
            consumer=Consumer(queue, url, model=model, name=worker_id),
            signals=Signals(url, namespace),
            dispatcher=Dispatcher(database, queue, model=model, depth=settings.dispatch_depth),
        )

    def close(self) -> None:
        """Close all of them."""
        self.consumer.close()
        self.signals.close()
        self.queue.close()
        self.database.close()


def open_database(settings: Settings) -> Database:
    """Return the database, which answers and has this version's tables. Raises StartupError."""
    database = Database(settings.sql_url)
    # Who is started again in an outage would else be the first to call the others dead.
    database.outage.note_start()
    require_database(database)
    require_migrated(database)
    return database
