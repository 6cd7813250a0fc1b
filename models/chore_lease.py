"""Leases on chores: of all the processes that would do a chore now, one does it, by the database's clock."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from models.database import Database, now
from models.tables.chore import ChoreLease


class ChoreLeases:
    """The chores as one process takes them. Raises DatabaseUnavailable.

    `owner` begins with `<host>:<pid>:` and is new at every start of a process.
    """

    def __init__(self, database: Database, owner: str) -> None:
        self._database = database
        self._owner = owner

    def take(self, name: str, *, pause_seconds: float, lease_seconds: float) -> int | None:
        """Take a chore unless somebody is at it or has begun it less than its pause ago.

        Returns the token to `release` it with, or None. The pause counts from now; the lease ends by itself,
        so that a process that dies keeps nobody from the chore for longer.
        """
        try:
            return self._take(name, pause_seconds, lease_seconds)
        except IntegrityError:
            # Somebody else did it for the first time at this very moment.
            return None

    def release(self, name: str, token: int) -> None:
        """Say that a chore is done. One that somebody else has taken since stays with them."""
        with self._database.transaction() as session:
            session.execute(
                update(ChoreLease)
                .where(ChoreLease.name == name, ChoreLease.token == token)
                .values(lease_until=None)
            )

    def _take(self, name: str, pause_seconds: float, lease_seconds: float) -> int | None:
        with self._database.transaction() as session:
            at = now(session)
            times = {
                "due_at": at + timedelta(seconds=pause_seconds),
                "lease_until": at + timedelta(seconds=lease_seconds),
            }
            token = session.scalar(
                update(ChoreLease)
                .where(
                    ChoreLease.name == name,
                    ChoreLease.due_at <= at,
                    or_(ChoreLease.lease_until.is_(None), ChoreLease.lease_until <= at),
                )
                .values(token=ChoreLease.token + 1, owner=self._owner, **times)
                .returning(ChoreLease.token)
            )
            if token is not None or session.get(ChoreLease, name) is not None:
                return token
            session.execute(insert(ChoreLease).values(name=name, token=1, owner=self._owner, **times))
            return 1


def has_taken_a_chore(database: Database, host: str, pid: int | None = None) -> bool:
    """Say whether this process, or any of this host, has taken a chore that is not due again yet."""
    prefix = f"{host}:" if pid is None else f"{host}:{pid}:"
    with database.reading() as session:
        owners = session.scalars(select(ChoreLease.owner).where(ChoreLease.due_at > now(session)))
        return any(owner.startswith(prefix) for owner in owners)
