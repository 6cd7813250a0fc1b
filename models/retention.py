"""Retention: rows that only grow in number are forgotten once they are old. A job is never among them."""

from __future__ import annotations

from datetime import datetime, timedelta

import structlog
from sqlalchemy import delete, inspect, select, tuple_
from sqlalchemy.orm import InstrumentedAttribute

from models.database import Database, now
from models.tables.project import IdempotencyKey
from models.tables.root import Base
from models.tables.worker import Window

_log = structlog.get_logger()

#: Rows deleted by one transaction, and transactions of one table in one go.
_CHUNK = 500
_MAX_CHUNKS = 100


class Retention:
    """Forgets what is older than it has to be kept. May run in several places at once."""

    def __init__(self, database: Database, *, idempotency_seconds: float, history_seconds: float) -> None:
        self._database = database
        self._idempotency_seconds = idempotency_seconds
        self._history_seconds = history_seconds

    def forget(self) -> dict[str, int]:
        """Delete what is too old, in short transactions, and return how many rows of which table.

        Bounded: what is left over is for the next time. Raises DatabaseUnavailable.
        """
        deleted = {
            "idempotency_keys": self._delete(
                IdempotencyKey, IdempotencyKey.created_at, self._idempotency_seconds
            ),
            "windows": self._delete(Window, Window.closed_at, self._history_seconds),
        }
        if any(deleted.values()):
            _log.info("old_rows_deleted", **deleted)
        return deleted

    def _delete(self, table: type[Base], time: InstrumentedAttribute[datetime], age_seconds: float) -> int:
        total = 0
        for _ in range(_MAX_CHUNKS):
            deleted = self._delete_chunk(table, time, age_seconds)
            total += deleted
            if deleted < _CHUNK:
                break
        return total

    def _delete_chunk(
        self, table: type[Base], time: InstrumentedAttribute[datetime], age_seconds: float
    ) -> int:
        key = inspect(table).primary_key
        with self._database.transaction() as session:
            before = now(session) - timedelta(seconds=age_seconds)
            old = select(*key).where(time < before).order_by(time).limit(_CHUNK)
            gone = session.execute(
                delete(table).where(tuple_(*key).in_(old)).returning(key[0]),
                execution_options={"synchronize_session": False},
            )
            return len(gone.all())
