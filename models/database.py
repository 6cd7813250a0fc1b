"""The SQL database: transactions, its clock, its migrations."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from sqlalchemy import Engine, create_engine, event, exc, text
from sqlalchemy.engine import Connection, make_url
from sqlalchemy.orm import Session

from models.errors import DatabaseUnavailable, StartupError
from models.outage import Outage
from models.tables.root import UtcMicroseconds

#: How long SQLite waits for another writer before it gives up.
_SQLITE_BUSY_SECONDS = 30
_SQLITE_RETRY_SECONDS = 0.01
#: How long PostgreSQL may take to answer a connect.
_CONNECT_SECONDS = 5
#: How long a connection to PostgreSQL may be cut off, and how often one that waits for an answer is tried.
_MAX_CUT_OFF_SECONDS = 15
_PROBE_SECONDS = 5
#: How long PostgreSQL waits for the next statement of a transaction before it ends it.
_MAX_IDLE_SECONDS = 10

#: Errors that say that our statement was wrong, and not that the database is away or broken.
_OUR_MISTAKES = (exc.IntegrityError, exc.DataError, exc.ProgrammingError, exc.NotSupportedError)

#: What is raised, in or below the driver, for a value that the database cannot hold.
UNWRITABLE = (exc.IntegrityError, exc.DataError, UnicodeError, OverflowError)

#: Microseconds since 1970 by the database's own clock.
_NOW = {
    "sqlite": text("SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000 AS now"),
    "postgresql": text("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT) AS now"),
}

#: libpq's names. A machine that is cut off or gone closes no connection, and by their own defaults systems
#: wait for it for minutes after a statement was sent, and for hours while its answer is awaited.
_POSTGRES_PATIENCE = {
    "connect_timeout": _CONNECT_SECONDS,
    "keepalives_idle": _PROBE_SECONDS,
    "keepalives_interval": _PROBE_SECONDS,
    "keepalives_count": _MAX_CUT_OFF_SECONDS // _PROBE_SECONDS - 1,
    "tcp_user_timeout": _MAX_CUT_OFF_SECONDS * 1000,
}


class Database:
    """A SQLite or PostgreSQL database, reached through short transactions."""

    def __init__(self, url: str) -> None:
        try:
            parsed = make_url(url)
        except exc.ArgumentError as error:
            raise StartupError(f"database URL is not valid: {error}") from error
        if parsed.get_backend_name() not in _NOW:
            raise StartupError(
                f"database URL must begin with sqlite:/// or postgresql://, not {parsed.drivername}"
            )
        self.outage = Outage()
        self.engine = _create_sqlite(url) if parsed.get_backend_name() == "sqlite" else _create_postgres(url)
        if self.is_sqlite:
            event.listen(self.engine, "begin", self._begin_sqlite)

    @property
    def is_sqlite(self) -> bool:
        return self.engine.dialect.name == "sqlite"

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """Give a session whose writes are committed together at the end, or not at all.

        Raises DatabaseUnavailable when the database does not answer.
        """
        with self._session(self.engine.execution_options(sqlite_begin="BEGIN IMMEDIATE")) as session:
            yield session

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Give a session that only reads."""
        with self._session(self.engine.execution_options(sqlite_begin="BEGIN")) as session:
            yield session

    @contextmanager
    def _session(self, engine: Engine) -> Iterator[Session]:
        try:
            with Session(engine, expire_on_commit=False) as session, session.begin():
                yield session
        except (exc.DatabaseError, exc.InterfaceError, exc.TimeoutError) as error:
            if isinstance(error, _OUR_MISTAKES):
                raise
            self.outage.note_failure()
            raise DatabaseUnavailable(f"the database does not answer: {_first_line(error)}") from error
        self.outage.note_success()

    def _begin_sqlite(self, connection: Connection) -> None:
        # A deferred transaction that reads first and writes later fails at once when another one wrote
        # in between; one that takes the write lock at its start waits for its turn.
        begin = connection.get_execution_options().get("sqlite_begin", "BEGIN IMMEDIATE")
        with self.outage.waiting():
            connection.exec_driver_sql(begin)

    def close(self) -> None:
        """Close all idle connections."""
        self.engine.dispose()


def now(session: Session) -> datetime:
    """Return the database's time. All leases are measured by this one clock."""
    statement = _NOW[session.get_bind().dialect.name].columns(now=UtcMicroseconds)
    return cast(datetime, session.scalar(statement))


def _create_postgres(url: str) -> Engine:
    engine = create_engine(
        url,
        pool_pre_ping=True,
        pool_size=10,
        max_overflow=20,
        connect_args=_POSTGRES_PATIENCE,
        hide_parameters=True,
    )
    event.listen(engine, "connect", _prepare_postgres)
    return engine


def _prepare_postgres(connection: Any, _record: Any) -> None:
    # A process that is stopped in the middle of a transaction keeps its locks: nobody could change the same
    # counters, so nothing could be accepted, until it goes on or is killed.
    connection.execute(f"SET idle_in_transaction_session_timeout = {_MAX_IDLE_SECONDS * 1000}")
    connection.commit()


def _create_sqlite(url: str) -> Engine:
    file = make_url(url).database
    if not file or file == ":memory:":
        raise StartupError("a SQLite database must be a file: an in-memory one is not shared by processes")
    Path(file).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    engine = create_engine(
        url,
        pool_size=10,
        max_overflow=20,
        connect_args={"timeout": _SQLITE_BUSY_SECONDS},
        hide_parameters=True,
    )
    event.listen(engine, "connect", _prepare_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    # The driver must not begin transactions by itself: we say which kind each one is.
    connection.isolation_level = None
    _use_write_ahead_log(connection)
    for pragma in ("synchronous = FULL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}").close()


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    # While another process writes to a file that is not yet in this mode, SQLite refuses the change at once,
    # without the wait that it grants all other statements: we wait in its place.
    give_up_at = time.monotonic() + _SQLITE_BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").close()
            return
        except sqlite3.OperationalError as error:
            is_busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not is_busy or time.monotonic() > give_up_at:
                raise
            time.sleep(_SQLITE_RETRY_SECONDS)


def _first_line(error: exc.SQLAlchemyError) -> str:
    cause = getattr(error, "orig", None) or error
    return str(cause).strip().partition("\n")[0]
