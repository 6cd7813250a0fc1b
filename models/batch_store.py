"""Batches as their project sees them, with their results in the order of the requests."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, TextClause, select
from sqlalchemy.orm import Session, aliased

from models.database import Database, now
from models.errors import BatchNotFound
from models.line_jobs import UNFINISHED, is_newest
from models.tables.batch_job import BatchJob
from models.tables.job import LEGAL_TRANSITIONS, Job, JobResult, JobStatus


@dataclass(frozen=True, slots=True)
class BatchLine:
    """One line of a batch: its job, whatever its status, and the result if there is one."""

    job: Job
    result: JobResult | None


@dataclass(frozen=True, slots=True)
class LineFilter:
    """Which lines of a batch to show; None means any."""

    custom_id: str | None = None
    status: JobStatus | None = None


_ANY = LineFilter()


class BatchStore:
    """Reads batches. A batch of another project does not exist here."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, project_id: str, batch_id: str) -> BatchJob:
        """Return a batch with its counters. Raises BatchNotFound."""
        with self._database.reading() as session:
            return _require(session, project_id, batch_id)

    def page(self, project_id: str, *, after: str | None, limit: int) -> tuple[list[BatchJob], bool]:
        """Return batches, newest first, that come after the batch `after`; and whether there are more.

        Raises BatchNotFound where there is no batch `after`.
        """
        statement = select(BatchJob).where(BatchJob.project_id == project_id)
        with self._database.reading() as session:
            if after is not None:
                _require(session, project_id, after)
                statement = statement.where(BatchJob.id < after)
            found = session.scalars(statement.order_by(BatchJob.id.desc()).limit(limit + 1)).all()
        return list(found[:limit]), len(found) > limit

    def time(self) -> datetime:
        """Return the database's time, by which windows are measured."""
        with self._database.reading() as session:
            return now(session)

    def first_waiting(self, batch: BatchJob) -> tuple[Job | None, datetime]:
        """Return the queued job of a batch's first line that has one; and the database's time."""
        statement = select(Job).where(Job.batch_id == batch.id, UNFINISHED, Job.status == JobStatus.QUEUED)
        with self._database.reading() as session:
            return session.scalar(statement.order_by(Job.line).limit(1)), now(session)

    def complete_through(self, project_id: str, batch_id: str) -> int | None:
        """Return the line up to which all have ended; None: not even the first. Raises BatchNotFound."""
        with self._database.reading() as session:
            batch = _require(session, project_id, batch_id)
            unfinished = select(Job.line).where(Job.batch_id == batch.id, UNFINISHED)
            first = session.scalar(unfinished.order_by(Job.line).limit(1))
        # Neither has a line ended that is no job yet, nor one that may be tried again.
        ends = (first, batch.split_line, batch.retry_line, batch.total)
        through = min(line for line in ends if line is not None) - 1
        return through if through >= 0 else None

    def lines(
        self,
        project_id: str,
        batch_id: str,
        chosen: LineFilter = _ANY,
        *,
        after: int | None,
        limit: int,
    ) -> tuple[list[BatchLine], bool]:
        """Return the lines after the line `after`, in input order, and whether there are more.

        Every line is there in any status, unless it is no job yet; of a line that was tried again, the
        newest revision. Raises BatchNotFound.
        """
        statement = (
            select(Job, JobResult)
            .outerjoin(JobResult, JobResult.job_id == Job.id)
            .where(*_conditions(batch_id, chosen))
        )
        if after is not None:
            statement = statement.where(Job.line > after)
        with self._database.reading() as session:
            _require(session, project_id, batch_id)
            rows = session.execute(statement.order_by(Job.line).limit(limit + 1)).all()
        return [BatchLine(*row) for row in rows[:limit]], len(rows) > limit


def _require(session: Session, project_id: str, batch_id: str) -> BatchJob:
    batch = session.get(BatchJob, batch_id)
    if batch is None or batch.project_id != project_id:
        raise BatchNotFound
    return batch


def _conditions(batch_id: str, chosen: LineFilter) -> list[ColumnElement[bool] | TextClause]:
    conditions: list[ColumnElement[bool] | TextClause] = [is_newest()]
    if chosen.custom_id is None:
        conditions.append(Job.batch_id == batch_id)
    else:
        # By its id alone, or SQLite would rather walk through the whole batch in the order of its lines.
        named = aliased(Job)
        ids = select(named.id).where(named.batch_id == batch_id, named.custom_id == chosen.custom_id)
        conditions.append(Job.id.in_(ids))
    if chosen.status is not None:
        conditions.append(Job.status == chosen.status)
    if chosen.status in LEGAL_TRANSITIONS:
        conditions.append(UNFINISHED)
    return conditions
