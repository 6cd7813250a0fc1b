"""Rows of batches as they stand at some point of their way."""

from __future__ import annotations

from typing import Any

from models.batch_state import settle
from models.database import Database, now
from models.ids import new_id
from models.job_error import JobError
from models.move import count_jobs
from models.tables.batch_job import BatchJob, BatchStatus
from models.tables.job import Job, JobResult, JobStatus, Lane
from tests.models.pipeline import MODEL, Pipeline


def add_batch(database: Database, project_id: str, **values: Any) -> str:
    """Store a batch that was just created from a file, but for `values`, and return its id."""
    with database.transaction() as session:
        plain = {
            "id": new_id("batch"),
            "status": BatchStatus.VALIDATING,
            "total": 0,
            "queued": 0,
            "created_at": now(session),
            "input_file_id": "file_1",
            "endpoint": "/v1/completions",
            "model": MODEL,
            "lane": "bulk",
            "completion_window": "24h",
        }
        batch = BatchJob(**{**plain, "project_id": project_id, **values})
        session.add(batch)
        return batch.id


def change_batch(database: Database, batch_id: str, **values: Any) -> None:
    """Write into a batch's row, past all rules."""
    with database.transaction() as session:
        batch = session.get_one(BatchJob, batch_id)
        for name, value in values.items():
            setattr(batch, name, value)


def split_batch(pipeline: Pipeline, count: int, **values: Any) -> str:
    """Store a batch of a file whose lines are all jobs, in the bulk lane, and return its id."""
    batch_id = pipeline.accept(count, lane=Lane.BULK)
    plain = {"input_file_id": "file_1", "endpoint": "/v1/completions", "model": MODEL, "lane": "bulk"}
    change_batch(pipeline.database, batch_id, **{**plain, "completion_window": "24h", **values})
    return batch_id


def lines_of(pipeline: Pipeline, batch_id: str) -> list[Job]:
    """The newest job of each line of a batch, in their order."""
    newest = {
        job.line: job
        for job in sorted(pipeline.jobs(), key=lambda job: job.revision)
        if job.batch_id == batch_id
    }
    return [newest[line] for line in sorted(newest, key=lambda line: line or 0)]


def counters_of(batch: BatchJob) -> dict[str, int]:
    """The counters of a batch that are not 0, by status."""
    return {status.value: number for status in JobStatus if (number := getattr(batch, status.value))}


def refuse_line(pipeline: Pipeline, job_id: str) -> None:
    """Make a queued line one that was made of a faulty body: failed from the first."""
    job = pipeline.job(job_id)
    error = JobError("invalid_value", "That will not do.", "top_p")
    with pipeline.database.transaction() as session:
        row = session.get_one(Job, job_id, with_for_update=True)
        row.status, row.error_code, row.finished_at = JobStatus.FAILED, error.code, row.created_at
        session.add(JobResult(job_id=job_id, error=error.text()))
        batch = session.get_one(BatchJob, job.batch_id)
        batch.count(JobStatus.QUEUED, -1)
        batch.count(JobStatus.FAILED, 1)
        settle(batch, now(session))
        session.flush()
        key = (job.project_id, job.lane)
        count_jobs(session, {(*key, JobStatus.QUEUED): -1, (*key, JobStatus.FAILED): 1})
