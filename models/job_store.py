"""Jobs as their project sees them: found, listed, cancelled."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session, load_only

from models.database import Database
from models.errors import JobAlreadyFinished, JobNotFound
from models.move import Move, cancellation, move_jobs
from models.tables.job import FINAL_STATUSES, IS_NOT_HELD, Job, JobRequest, JobResult, JobStatus
from models.tables.worker import Window

#: Positions are exact up to this one.
MAX_POSITION = 1000


@dataclass(frozen=True, slots=True)
class Place:
    """A queued job's place: how many wait before it, and their cost; both end at `MAX_POSITION` jobs."""

    num_before: int
    tokens_before: int


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job with its metadata, its result and its window; the body it was asked with stays where it is."""

    job: Job
    #: None where its row was lost: then the job fails at its claim, and says so.
    request: JobRequest | None
    result: JobResult | None
    window: Window | None


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs a list shows; None means any."""

    status: JobStatus | None = None
    batch_id: str | None = None
    model: str | None = None
    error_code: str | None = None


class JobStore:
    """Reads and cancels jobs. A job of another project does not exist here."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, project_id: str, job_id: str) -> JobRecord:
        """Return a job. Raises JobNotFound."""
        with self._database.reading() as session:
            # One statement for both questions: every hand-in and every look comes through here.
            records = _records(session, Job.id == job_id, Job.project_id == project_id)
        if not records:
            raise JobNotFound
        return records[0]

    def is_finished(self, project_id: str, job_id: str) -> bool:
        """Say whether a job has reached a final status; cheap, for polling. Raises JobNotFound."""
        with self._database.reading() as session:
            return _require(session, project_id, job_id).status in FINAL_STATUSES

    def place(self, job: Job) -> Place:
        """Return a queued job's place among the waiting jobs of its model and lane; held ones do not wait."""
        before = (
            select(Job.cost_tokens)
            .where(
                Job.model == job.model,
                Job.lane == job.lane,
                Job.status == JobStatus.QUEUED,
                IS_NOT_HELD,
                Job.id < job.id,
            )
            .limit(MAX_POSITION)
            .subquery()
        )
        with self._database.reading() as session:
            count, tokens = session.execute(
                select(func.count(), func.coalesce(func.sum(before.c.cost_tokens), 0)).select_from(before)
            ).one()
        return Place(count, int(tokens))

    def page(
        self, project_id: str, chosen: JobFilter, *, after: str | None, limit: int
    ) -> tuple[list[JobRecord], bool]:
        """Return jobs, newest first, that come after the job `after`; and whether there are more."""
        statement = select(Job.id).where(Job.project_id == project_id)
        for column, value in (
            (Job.status, chosen.status),
            (Job.batch_id, chosen.batch_id),
            (Job.model, chosen.model),
            (Job.error_code, chosen.error_code),
        ):
            if value is not None:
                statement = statement.where(column == value)
        with self._database.reading() as session:
            if after is not None:
                _require(session, project_id, after)
                statement = statement.where(Job.id < after)
            ids = session.scalars(statement.order_by(Job.id.desc()).limit(limit + 1)).all()
            found = {record.job.id: record for record in _records(session, Job.id.in_(ids[:limit]))}
            return [found[job_id] for job_id in ids[:limit]], len(ids) > limit

    def cancel(self, project_id: str, job_id: str) -> JobStatus:
        """Cancel a job at once and return the status it had; a cancelled one stays as it is.

        Raises JobNotFound, and JobAlreadyFinished where there is nothing left to cancel.
        """

        before = JobStatus.CANCELLED

        def stop(job: Job, at: datetime) -> Move | None:
            nonlocal before
            before = JobStatus(job.status)
            return cancellation(at)

        with self._database.transaction() as session:
            _require(session, project_id, job_id)
            if not move_jobs(session, [job_id], stop) and before != JobStatus.CANCELLED:
                raise JobAlreadyFinished(f"The job has finished already: it is {before}.")
            return before


def _require(session: Session, project_id: str, job_id: str) -> Job:
    job = session.get(Job, job_id)
    if job is None or job.project_id != project_id:
        raise JobNotFound
    return job


def _records(session: Session, *conditions: ColumnElement[bool]) -> list[JobRecord]:
    rows = session.execute(
        select(Job, JobRequest, JobResult, Window)
        .outerjoin(JobRequest, JobRequest.job_id == Job.id)
        .outerjoin(JobResult, JobResult.job_id == Job.id)
        .outerjoin(Window, Window.id == Job.window_id)
        .where(*conditions)
        # What the client sent may be long, and is not shown.
        .options(load_only(JobRequest.job_id, JobRequest.metadata_text, raiseload=True))
    ).all()
    return [JobRecord(*row) for row in rows]
