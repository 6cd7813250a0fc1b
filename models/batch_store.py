"""Batches as their project sees them, with their results in the order of the requests."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import exists, select
from sqlalchemy.orm import Session, aliased

from models.database import Database
from models.errors import BatchNotFound
from models.tables.batch_job import BatchJob
from models.tables.job import Job, JobResult


@dataclass(frozen=True, slots=True)
class BatchLine:
    """One line of a batch: its job, whatever its status, and the result if there is one."""

    job: Job
    result: JobResult | None


class BatchStore:
    """Reads batches. A batch of another project does not exist here."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, project_id: str, batch_id: str) -> BatchJob:
        """Return a batch with its counters. Raises BatchNotFound."""
        with self._database.reading() as session:
            return _require(session, project_id, batch_id)

    def lines(
        self, project_id: str, batch_id: str, *, after: int | None, limit: int
    ) -> tuple[list[BatchLine], bool]:
        """Return the lines after the line `after`, in input order, and whether there are more.

        Every line is there in any status; of a line that was tried again, the newest revision.
        Raises BatchNotFound.
        """
        statement = select(Job, JobResult).outerjoin(JobResult, JobResult.job_id == Job.id)
        newer = aliased(Job)
        tried_again = exists().where(
            newer.batch_id == Job.batch_id, newer.line == Job.line, newer.revision > Job.revision
        )
        statement = statement.where(Job.batch_id == batch_id, ~tried_again)
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
