"""The fleet: which workers are there, and what they say of themselves."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from models.database import Database, now
from models.strict_json import dump_json
from models.tables.worker import Worker

#: A worker whose last heartbeat is older than this counts as gone.
ALIVE_SECONDS = 30.0
#: One that was silent for so long will not come back.
_FORGET_SECONDS = 86400.0

#: The figure that tells a worker's speed.
TOKENS_PER_SECOND = "tokens_per_second"


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


@dataclass(frozen=True, slots=True)
class FleetSpeed:
    """What some workers can do together."""

    num_alive: int
    #: By their own account; None if none has told yet.
    tokens_per_second: float | None


class Fleet:
    """The table of workers."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def join(self, card: WorkerCard) -> None:
        """Register a worker; it is alive from now on. Those that have long been gone are forgotten."""
        with self._database.transaction() as session:
            session.execute(
                delete(Worker).where(Worker.heartbeat_at < now(session) - timedelta(seconds=_FORGET_SECONDS))
            )
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

    def beat(self, worker_id: str, stats: Mapping[str, float], *, has_progressed: bool = False) -> None:
        """Keep a worker alive; store its latest figures, and whether it has computed since the last time."""
        with self._database.transaction() as session:
            at = now(session)
            values: dict[str, object] = {"heartbeat_at": at, "stats": dump_json(stats)}
            if has_progressed:
                values["progress_at"] = at
            session.execute(update(Worker).where(Worker.id == worker_id).values(**values))

    def tokens_per_second(self, model: str) -> float | None:
        """Return what all workers of a model compute in a second by their own account; None if unknown."""
        return self.speed(model).tokens_per_second

    def speed(self, model: str | None) -> FleetSpeed:
        """Return what the workers of a model can do, or those of all models together."""
        workers = [worker for worker in self.alive() if model is None or worker.model == model]
        told = [_rate(worker.stats) for worker in workers]
        total = sum(rate for rate in told if rate is not None)
        return FleetSpeed(len(workers), total if total > 0 else None)

    def leave(self, worker_id: str) -> None:
        """Forget a worker that has stopped."""
        with self._database.transaction() as session:
            session.execute(delete(Worker).where(Worker.id == worker_id))

    def alive(self) -> list[Worker]:
        """Return the workers with a fresh heartbeat, oldest first."""
        with self._database.reading() as session:
            return alive_workers(session, now(session))


def alive_workers(session: Session, at: datetime) -> list[Worker]:
    """Return the workers whose heartbeat was fresh at a time, oldest first."""
    fresh = at - timedelta(seconds=ALIVE_SECONDS)
    return list(session.scalars(select(Worker).where(Worker.heartbeat_at >= fresh).order_by(Worker.id)))


def _rate(stats: str | None) -> float | None:
    rate = json.loads(stats).get(TOKENS_PER_SECOND) if stats is not None else None
    return float(rate) if isinstance(rate, int | float) and math.isfinite(rate) else None
