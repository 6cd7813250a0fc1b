"""Requests that are one and the same: what a client has sent before makes nothing new."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from models.errors import IdempotencyMismatch
from models.tables.project import IdempotencyKey

#: How long after a request one that says it is its repetition may come. The openai SDK waits ten minutes
#: for an answer, and tries three times.
_REPETITION = timedelta(minutes=25)


def find_known(session: Session, project_id: str, key: str, fingerprint: str) -> str | None:
    """Return what was made under a client's key. Raises IdempotencyMismatch if of another request."""
    known = session.get(IdempotencyKey, (project_id, key))
    if known is None:
        return None
    if known.request_hash != fingerprint:
        raise IdempotencyMismatch
    return known.resource_id


def remember(
    session: Session, project_id: str, key: str, *, fingerprint: str, resource_id: str, at: datetime
) -> None:
    """Keep what was made under a key that is new."""
    session.add(
        IdempotencyKey(
            project_id=project_id,
            key=key,
            request_hash=fingerprint,
            resource_id=resource_id,
            created_at=at,
        )
    )


class Repetition:
    """A request without a key that was, perhaps, sent before and arrived.

    The openai SDK sends a request again when no answer comes, without a key but with the number of the try.
    So what was made last of the same words is kept under a key that no client can give. Its row stays
    locked until the end of the transaction: two tries that arrive together make one thing.
    """

    def __init__(self, session: Session, project_id: str, fingerprint: str) -> None:
        self._session = session
        self._project_id = project_id
        self._fingerprint = fingerprint
        # A client's key is printable.
        self._key = f"\x01{fingerprint}"
        self._last = session.scalar(
            select(IdempotencyKey)
            .where(IdempotencyKey.project_id == project_id, IdempotencyKey.key == self._key)
            .with_for_update()
        )

    def find(self, at: datetime) -> str | None:
        """Return what was made of these words a short time ago."""
        if self._last is None or self._last.created_at < at - _REPETITION:
            return None
        return self._last.resource_id

    def remember(self, resource_id: str, at: datetime) -> None:
        """Keep what was made of these words now."""
        if self._last is not None:
            self._last.resource_id, self._last.created_at = resource_id, at
            return
        remember(
            self._session,
            self._project_id,
            self._key,
            fingerprint=self._fingerprint,
            resource_id=resource_id,
            at=at,
        )
