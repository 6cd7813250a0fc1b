"""Counters of incidents, kept in SQL so that they are right whoever counts, and survive every restart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from sqlalchemy import select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from models.tables.incident import Incident, IncidentCount

_INSERT: dict[str, Callable[..., sqlite.Insert | postgresql.Insert]] = {
    "sqlite": sqlite.insert,
    "postgresql": postgresql.insert,
}


def count_incidents(session: Session, incident: Incident, models: Iterable[str]) -> None:
    """Count an incident once for each of these model names, one a job.

    To be called last in the transaction that makes it true: these rows are locked after all others, and in
    one order.
    """
    for model, number in sorted(Counter(models).items()):
        row = _INSERT[session.get_bind().dialect.name](IncidentCount).values(
            incident=incident, model=model, number=number
        )
        session.execute(
            row.on_conflict_do_update(
                index_elements=[IncidentCount.incident, IncidentCount.model],
                set_={"number": IncidentCount.number + row.excluded.number},
            )
        )


def read_incidents(session: Session) -> dict[tuple[Incident, str], int]:
    """Return what was counted, by incident and model name; what is missing has not happened."""
    rows = session.scalars(select(IncidentCount))
    return {(Incident(row.incident), row.model): row.number for row in rows}
