"""The fleet: which workers are there, and what they say of themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import delete, select, update

from models.database import Database, now
from models.strict_json import dump_json
from models.tables.worker import Worker

#: A worker whose last heartbeat is older than this counts as gone.
ALIVE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class WorkerCard:
    """What a worker says of itself when it registers."""

    id: str
    host: str
    pid: int
    model: str
    max_model_len: int
    device: str
    version: str


class Fleet:
    """The table of workers."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def join(self, card: WorkerCard) -> None:
        """Register a worker; it is alive from now on."""
        with self._database.transaction() as session:
            session.add(
                Worker(
                    id=card.id,
                    host=card.host,
                    pid=card.pid,
                    model=card.model,
                    max_model_len=card.max_model_len,
                    device=card.device,
                    version=card.version,
                    heartbeat_at=now(session),
                )
            )

    def beat(self, worker_id: str, stats: Mapping[str, float]) -> None:
        """Keep a worker alive and store its latest figures."""
        with self._database.transaction() as session:
            session.execute(
                update(Worker)
                .where(Worker.id == worker_id)
                .values(heartbeat_at=now(session), stats=dump_json(stats))
            )

    def leave(self, worker_id: str) -> None:
        """Forget a worker that has stopped."""
        with self._database.transaction() as session:
            session.execute(delete(Worker).where(Worker.id == worker_id))

    def alive(self) -> list[Worker]:
        """Return the workers with a fresh heartbeat, oldest first."""
        with self._database.reading() as session:
            fresh = now(session) - timedelta(seconds=ALIVE_SECONDS)
            return list(
                session.scalars(select(Worker).where(Worker.heartbeat_at >= fresh).order_by(Worker.id))
            )
