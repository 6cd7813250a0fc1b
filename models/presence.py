"""Whether the database and Redis are there, asked once when a process starts.

Later they may come and go, and whoever needs them waits or answers without them.
"""

from __future__ import annotations

from contextlib import closing

from models.database import Database, now
from models.errors import DatabaseUnavailable, QueueUnavailable, StartupError
from models.redis_client import connect, queue_errors


def require_database(database: Database) -> None:
    """Raise StartupError, saying how to mend it, unless the database answers."""
    try:
        with database.reading() as session:
            now(session)
    except DatabaseUnavailable as error:
        raise StartupError(f"{error.message}; start it, or give another by HEADRACE_DATABASE_URL") from error


def require_redis(url: str) -> None:
    """Raise StartupError, saying how to mend it, unless Redis answers."""
    try:
        with closing(connect(url)) as client, queue_errors():
            client.ping()
    except QueueUnavailable as error:
        raise StartupError(f"{error.message}; start it, or give another by HEADRACE_REDIS_URL") from error
