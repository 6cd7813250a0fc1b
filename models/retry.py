"""Retry: another job for a request that has ended without an answer."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from models.batch_state import conform, reopen
from models.database import Database, now
from models.errors import JobAlreadyRetried, JobNotFound, JobNotRetryable
from models.ids import new_id
from models.move import count_jobs
from models.tables.batch_job import BatchJob, BatchStatus
from models.tables.job import Job, JobRequest, JobStatus

#: What a retry may begin from.
RETRYABLE_STATUSES = (JobStatus.FAILED, JobStatus.EXPIRED, JobStatus.CANCELLED)

#: Batches that compute, or can do so again.
_MAY_GO_ON = (BatchStatus.IN_PROGRESS, BatchStatus.COMPLETED, BatchStatus.EXPIRED, BatchStatus.CANCELLED)


def retry_job(database: Database, project_id: str, job_id: str) -> str:
    """Queue a finished job's request once more, as a new job, and return its id.

    What has ended stays as it is. The new job asks the same with the same seed; of a batch it takes over
    the line, with the next revision, and the batch is in progress again. A deadline that has passed is
    left out; a batch's window that has passed begins anew. Raises JobNotFound; JobNotRetryable unless the job
    has failed, expired or was cancelled; JobAlreadyRetried, which names the newer job, if there is one.
    """
    with database.transaction() as session:
        # Locked in the order of `move_jobs`: jobs, batches, counters.
        job = session.scalar(select(Job).where(Job.id == job_id).with_for_update())
        if job is None or job.project_id != project_id:
            raise JobNotFound
        _require_retryable(session, job)
        at = now(session)
        new = successor(job, at)
        if job.batch_id is not None:
            _take_over(session, job, new)
        session.add(new)
        session.flush()
        request = session.get_one(JobRequest, job_id)
        session.add(
            JobRequest(
                job_id=new.id,
                body=request.body,
                metadata_text=request.metadata_text,
                callback_url=request.callback_url,
            )
        )
        session.flush()
        count_jobs(session, {(new.project_id, new.lane, JobStatus.QUEUED): 1})
        return new.id


def _require_retryable(session: Session, job: Job) -> None:
    if job.status not in RETRYABLE_STATUSES:
        raise JobNotRetryable(
            f"Only a job that has failed, expired or was cancelled can be retried: this one is {job.status}."
        )
    if was_refused(job):
        raise JobNotRetryable("The request of this job is not valid: it would fail again.")
    newer = session.scalar(select(Job.id).where(Job.retry_of == job.id))
    if newer is not None:
        raise JobAlreadyRetried(f"The job was retried already, as {newer}.")
    if session.get(JobRequest, job.id) is None:
        raise JobNotRetryable("The request of this job is not there any more.")


def was_refused(job: Job) -> bool:
    """Whether a job is a line of a batch that holds no valid request, so that it was never tried."""
    return job.status == JobStatus.FAILED and job.started_at is None


def successor(job: Job, at: datetime) -> Job:
    """Return a job that asks the same as one that has ended; of a batch it has the line."""
    in_time = job.deadline_at is not None and job.deadline_at > at
    return Job(
        id=new_id("job"),
        project_id=job.project_id,
        batch_id=job.batch_id,
        line=job.line,
        revision=job.revision + 1,
        custom_id=job.custom_id,
        endpoint=job.endpoint,
        model=job.model,
        lane=job.lane,
        status=JobStatus.QUEUED,
        cost_tokens=job.cost_tokens,
        seed=job.seed,
        prefix_key=job.prefix_key,
        deadline_at=job.deadline_at if in_time else None,
        available_at=at,
        held=0,
        retry_of=job.id,
        created_at=at,
    )


def _take_over(session: Session, job: Job, new: Job) -> None:
    """Let a batch count the new job in the place of the old one, and the new job be as the batch wants it."""
    batch = session.scalars(
        select(BatchJob)
        .where(BatchJob.id == job.batch_id)
        .with_for_update()
        .execution_options(populate_existing=True)
    ).one()
    if batch.status not in _MAY_GO_ON:
        raise JobNotRetryable(f"The batch of this job is {batch.status}.")
    batch.count(JobStatus(job.status), -1)
    batch.count(JobStatus.QUEUED, 1)
    if batch.status != BatchStatus.IN_PROGRESS:
        reopen(batch, new.created_at)
    conform(new, batch)
