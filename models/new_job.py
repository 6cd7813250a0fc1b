"""New jobs: what a valid request becomes, and how they are stored, many at once."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import insert
from sqlalchemy.orm import Session

from models.ids import new_id
from models.job_error import JobError
from models.move import count_jobs
from models.strict_json import dump_json
from models.tables.job import Job, JobRequest, JobResult, JobStatus
from models.validation import JobDraft


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job that is not stored yet, with its texts."""

    job: Job
    #: The request's body and metadata as JSON text.
    body: str
    metadata_text: str | None = None
    #: Of a job that is born failed.
    error: JobError | None = None

    @classmethod
    def of(cls, draft: JobDraft, project_id: str, at: datetime, *, batch_id: str | None = None) -> NewJob:
        """Return the job that a draft becomes at a time: queued, with a seed of its own if it has none."""
        job = Job(
            id=new_id("job"),
            project_id=project_id,
            batch_id=batch_id,
            line=draft.line if batch_id is not None else None,
            custom_id=draft.custom_id,
            endpoint=draft.endpoint,
            model=draft.model,
            lane=draft.lane,
            status=JobStatus.QUEUED,
            cost_tokens=draft.cost_tokens,
            seed=draft.seed if draft.seed is not None else new_seed(),
            deadline_at=_deadline_at(draft, at),
            available_at=at,
            held=0,
            created_at=at,
        )
        return cls(
            job, dump_json(draft.body), dump_json(draft.metadata) if draft.metadata is not None else None
        )


def store_new_jobs(session: Session, new: Sequence[NewJob]) -> None:
    """Insert jobs with their texts, and count them under their projects; batches are the caller's matter."""
    session.add_all([one.job for one in new])
    session.flush()
    requests = [{"job_id": one.job.id, "body": one.body, "metadata_text": one.metadata_text} for one in new]
    session.execute(insert(JobRequest), requests)
    errors = [{"job_id": one.job.id, "error": one.error.text()} for one in new if one.error is not None]
    if errors:
        session.execute(insert(JobResult), errors)
    count_jobs(session, Counter((one.job.project_id, one.job.lane, one.job.status) for one in new))


def new_seed() -> int:
    """Draw a seed for a request that names none."""
    return secrets.randbits(63)


def _deadline_at(draft: JobDraft, at: datetime) -> datetime | None:
    if draft.deadline_seconds is None:
        return draft.deadline_at
    return at + timedelta(seconds=draft.deadline_seconds)
