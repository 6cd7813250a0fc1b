"""API keys: made, kept as hashes, recognised, revoked."""

from __future__ import annotations

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

    def create(self, name: str, *, secret: str | None = None) -> NewKey:
        """Make a key of the default project, with a given secret or a new random one."""
        secret = secret or _new_secret()
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
        path = data_dir / "api_key"
        kept = _read_secret(path)
        secret = kept or _new_secret()
        if kept is None:
            # Kept before it counts: a key in the database whose secret nobody knows would be the last made.
            _keep_secret(path, secret)
        self.create("first key", secret=secret)

    def _ensure_given(self, secret: str) -> None:
        if len(secret) < _MIN_LENGTH:
            raise StartupError(f"HEADRACE_API_KEY must have at least {_MIN_LENGTH} characters")

        def make(session: Session) -> None:
            if session.scalar(select(ApiKey.id).where(ApiKey.hash == _hash(secret))) is None:
                session.add(_new_key(session, "HEADRACE_API_KEY", secret))

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


def _read_secret(path: Path) -> str | None:
    return path.read_text().strip() or None if path.exists() else None


def _keep_secret(path: Path, secret: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secret + "\n")
