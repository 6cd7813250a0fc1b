"""Which statements are executed, and how the database would find their rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import event

from models.database import Database


@contextmanager
def recorded(database: Database) -> Iterator[list[tuple[str, Any]]]:
    """Every statement that is executed meanwhile, with its parameters."""
    seen: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        seen.append((statement, parameters))

    event.listen(database.engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(database.engine, "before_cursor_execute", note)


def plan_of(database: Database, statement: str, parameters: Any) -> str:
    explain = "EXPLAIN QUERY PLAN " if database.is_sqlite else "EXPLAIN "
    with database.reading() as session:
        rows: Sequence[Any] = session.connection().exec_driver_sql(explain + statement, parameters).all()
    return "\n".join(str(row[-1]) for row in rows)
