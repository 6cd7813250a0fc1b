"""API keys: made, kept as hashes, recognised, revoked."""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from models.database import Database, now
from models.errors import InvalidApiKey, StartupError
from models.ids import new_id
from models.tables.job import JobStatus, Lane
from models.tables.project import ApiKey, JobCount, Project

DEFAULT_PROJECT = "default"

#: Shortest key that `HEADRACE_API_KEY` may give.
_MIN_LENGTH = 16


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just made. The secret is shown this once and kept nowhere."""

    id: str
    secret: str


class KeyRing:
    """The API keys of all projects."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def authenticate(self, secret: str) -> str:
        """Return the id of the project that a key belongs to. Raises InvalidApiKey."""
        with self._database.reading() as session:
            project_id = session.scalar(
                select(ApiKey.project_id).where(ApiKey.hash == _hash(secret), ApiKey.revoked_at.is_(None))
            )
        if project_id is None:
            raise InvalidApiKey
        return project_id

    def create(self, name: str) -> NewKey:
        """Make a key of the default project."""
        secret = _new_secret()
        with self._database.transaction() as session:
            key = _new_key(session, name, secret)
            session.add(key)
            return NewKey(key.id, secret)

    def all(self) -> list[ApiKey]:
        """Return all keys, revoked ones included, oldest first."""
        with self._database.reading() as session:
            return list(session.scalars(select(ApiKey).order_by(ApiKey.id)))

    def revoke(self, key_id: str) -> bool:
        """Make a key useless from now on; say whether there was such a key."""
        with self._database.transaction() as session:
            key = session.get(ApiKey, key_id)
            if key is None:
                return False
            key.revoked_at = key.revoked_at or now(session)
            return True

    def ensure_first(self, data_dir: Path, given: str | None) -> None:
        """Make sure that the default project has a key when the server starts.

        With `given` (from `HEADRACE_API_KEY`) that key is valid. Otherwise, if there is no key at all,
        one is made and kept in `<data_dir>/api_key`, which only its owner may read.
        """
        self._make_once(default_project)
        if given is not None:
            self._ensure_given(given)
            return
        with self._database.reading() as session:
            if session.scalar(select(ApiKey.id).limit(1)) is not None:
                return
        # Kept before it counts: a key in the database whose secret nobody knows would be the last one made.
        secret = _keep_secret(data_dir / "api_key")
        self._make_once(lambda session: session.add(_new_key(session, "first key", secret)))

    def _ensure_given(self, secret: str) -> None:
        if len(secret) < _MIN_LENGTH:
            raise StartupError(f"HEADRACE_API_KEY must have at least {_MIN_LENGTH} characters")

        def make(session: Session) -> None:
            known = session.scalar(select(ApiKey).where(ApiKey.hash == _hash(secret)))
            if known is None:
                session.add(_new_key(session, "HEADRACE_API_KEY", secret))
            elif known.revoked_at is not None:
                raise StartupError(f"HEADRACE_API_KEY is the revoked key {known.id}: give another one")

        self._make_once(make)

    def _make_once(self, make: Callable[[Session], object]) -> None:
        """Make what is missing; another process that starts at this moment may win, which is as good."""
        with suppress(IntegrityError), self._database.transaction() as session:
            make(session)


def default_project(session: Session) -> str:
    """Return the id of the default project, which is made where it is missing."""
    found = session.scalar(select(Project.id).where(Project.name == DEFAULT_PROJECT))
    if found is not None:
        return found
    project = Project(id=new_id("proj"), name=DEFAULT_PROJECT, created_at=now(session))
    session.add(project)
    session.flush()
    session.execute(
        insert(JobCount),
        [
            {"project_id": project.id, "lane": lane, "status": status, "num_jobs": 0}
            for lane in Lane
            for status in JobStatus
        ],
    )
    return project.id


def _new_key(session: Session, name: str, secret: str) -> ApiKey:
    return ApiKey(
        id=new_id("key"),
        project_id=default_project(session),
        name=name,
        hash=_hash(secret),
        hint=f"{secret[:6]}…{secret[-4:]}",
        created_at=now(session),
    )


def _new_secret() -> str:
    return f"hr_{secrets.token_urlsafe(32)}"


def _hash(secret: str) -> str:
    # Keys are random and long, so a fast hash is enough: there is nothing to guess.
    return hashlib.sha256(secret.encode()).hexdigest()


def _keep_secret(path: Path) -> str:
    """Return the secret that is kept in a file; one that is missing or empty gets a new one."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Locked, so that of two first starts at the same moment the second finds the first one's secret.
    with open(path, "a+", opener=_open_private) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        kept = file.read().strip()
        if not kept:
            kept = _new_secret()
            file.write(kept + "\n")
    return kept


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
