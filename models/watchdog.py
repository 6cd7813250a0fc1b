"""The watchdog: whether work goes on, by what SQL knows. A process that is up may still take nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, func, literal, select
from sqlalchemy.orm import Session

from models.database import Database, now
from models.fleet import alive_workers
from models.incidents import read_incidents
from models.tables.incident import Incident
from models.tables.job import IS_NOT_HELD, Job, JobStatus
from models.tables.worker import Window


@dataclass(frozen=True, slots=True)
class Pulse:
    """How the jobs of one model get on, by the database's clock."""

    model: str
    num_workers: int
    #: How long ago the job that waits longest could first have been taken; 0 if none waits. A job that may
    #: not run yet, or is held, does not wait.
    oldest_queued_age_seconds: float
    #: How long ago the job that runs longest was taken; 0 if none runs.
    oldest_running_age_seconds: float
    #: Jobs wait, and for `stuck_seconds` none was taken and no engine has computed.
    is_stuck: bool


class Watchdog:
    """Looks at the models that are accepted; cheap with any number of jobs. Raises DatabaseUnavailable."""

    def __init__(self, database: Database, *, models: Sequence[str], stuck_seconds: float) -> None:
        self._database = database
        self._models = models
        self._stuck_seconds = stuck_seconds

    def look(self) -> list[Pulse]:
        """Return how each model gets on."""
        with self._database.reading() as session:
            at = now(session)
            workers = alive_workers(session, at)
            running_since = _running_since(session)
            pulses = []
            for model in self._models:
                progress = [worker.progress_at for worker in workers if worker.model == model]
                queued_since = _queued_since(session, model, at)
                signs = [queued_since, _claimed_at(session, model), *progress]
                pulses.append(
                    Pulse(
                        model=model,
                        num_workers=len(progress),
                        oldest_queued_age_seconds=_age_seconds(queued_since, at),
                        oldest_running_age_seconds=_age_seconds(running_since.get(model), at),
                        is_stuck=queued_since is not None and self._is_long_ago(signs, at),
                    )
                )
            return pulses

    def incidents(self) -> dict[tuple[Incident, str], int]:
        """Return how often each incident has happened to jobs of each model, accepted or not."""
        with self._database.reading() as session:
            counted = read_incidents(session)
        return {(incident, model): 0 for incident in Incident for model in self._models} | counted

    def _is_long_ago(self, times: Iterable[datetime | None], at: datetime) -> bool:
        latest = max(time for time in times if time is not None)
        return at - latest > timedelta(seconds=self._stuck_seconds)


def _queued_since(session: Session, model: str, at: datetime) -> datetime | None:
    return session.scalar(
        select(Job.available_at)
        .where(Job.model == model, _is(JobStatus.QUEUED), IS_NOT_HELD, Job.available_at <= at)
        .order_by(Job.available_at)
        .limit(1)
    )


def _running_since(session: Session) -> dict[str, datetime]:
    # As many rows as all engines together have seats.
    rows = session.execute(
        select(Job.model, func.min(Job.started_at)).where(_is(JobStatus.RUNNING)).group_by(Job.model)
    )
    return {model: since for model, since in rows if since is not None}


def _claimed_at(session: Session, model: str) -> datetime | None:
    return session.scalar(
        select(Window.closed_at).where(Window.model == model).order_by(Window.closed_at.desc()).limit(1)
    )


def _is(status: JobStatus) -> ColumnElement[bool]:
    # Written into the statement: only then can a database know at once that a partial index serves.
    return Job.status == literal(str(status), literal_execute=True)


def _age_seconds(since: datetime | None, at: datetime) -> float:
    return 0.0 if since is None else max(0.0, (at - since).total_seconds())
