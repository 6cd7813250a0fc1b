"""What the database itself saw of every job: each change of status or token, noted by a trigger.

The product knows nothing of it. So a change that is undone later, or a second end of a job, is seen as well.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import text

from models.database import Database

_TABLE = """
CREATE TABLE chaos_history (
    number {serial}, job_id TEXT NOT NULL,
    status_before TEXT NOT NULL, status_after TEXT NOT NULL,
    token_before INTEGER NOT NULL, token_after INTEGER NOT NULL,
    is_retry INTEGER NOT NULL, owner TEXT, at BIGINT NOT NULL
)
"""

_INSERT = """
INSERT INTO chaos_history
    (job_id, status_before, status_after, token_before, token_after, is_retry, owner, at)
VALUES (
    NEW.id, OLD.status, NEW.status, OLD.token, NEW.token,
    CASE WHEN NEW.num_retries > OLD.num_retries THEN 1 ELSE 0 END, COALESCE(NEW.owner, OLD.owner), {now}
);
"""

_SQLITE = (
    _TABLE.format(serial="INTEGER PRIMARY KEY AUTOINCREMENT"),
    "CREATE TRIGGER chaos_history_note AFTER UPDATE OF status, token ON jobs"
    " WHEN OLD.status <> NEW.status OR OLD.token <> NEW.token BEGIN "
    + _INSERT.format(now="CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000")
    + " END",
)

_POSTGRESQL = (
    _TABLE.format(serial="BIGSERIAL PRIMARY KEY"),
    "CREATE FUNCTION chaos_history_note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
    + _INSERT.format(now="CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)")
    + " RETURN NULL; END $$",
    "CREATE TRIGGER chaos_history_note AFTER UPDATE ON jobs FOR EACH ROW"
    " WHEN (OLD.status <> NEW.status OR OLD.token <> NEW.token) EXECUTE FUNCTION chaos_history_note()",
)


class Change(NamedTuple):
    """One change of a job's row. `at` is in seconds since 1970."""

    job_id: str
    status_before: str
    status_after: str
    token_before: int
    token_after: int
    #: Whether it was queued again because of an error of its own.
    is_retry: bool
    #: Who holds it now, or held it until now.
    owner: str | None
    at: float

    @property
    def is_claim(self) -> bool:
        return self.status_after == "running"

    @property
    def is_break(self) -> bool:
        """Whether a lease was taken away from its owner, or given back."""
        return (self.status_before, self.status_after) == ("running", "queued") and not self.is_retry

    def __str__(self) -> str:
        return (
            f"{self.at:.3f} {self.status_before} -> {self.status_after},"
            f" token {self.token_before} -> {self.token_after}, owner {self.owner}"
            + (", retry" if self.is_retry else "")
        )


def begin_history(database: Database) -> None:
    """Note every change from now on."""
    with database.transaction() as session:
        for statement in _SQLITE if database.is_sqlite else _POSTGRESQL:
            session.connection().exec_driver_sql(statement)


def read_history(database: Database) -> dict[str, list[Change]]:
    """The changes of each job, in their order."""
    found: dict[str, list[Change]] = {}
    with database.reading() as session:
        rows = session.execute(
            text(
                "SELECT job_id, status_before, status_after, token_before, token_after, is_retry, owner, at"
                " FROM chaos_history ORDER BY number"
            )
        )
        for row in rows:
            change = Change(*row)
            seconds = change._replace(is_retry=bool(change.is_retry), at=change.at / 1_000_000)
            found.setdefault(change.job_id, []).append(seconds)
    return found
