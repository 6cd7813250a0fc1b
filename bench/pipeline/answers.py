"""Looks into the database for what became of the jobs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select

from bench.pipeline.submission import Accepted
from models.database import Database
from models.tables.job import Job, JobResult, JobStatus
from models.tables.project import JobCount

#: Pause between two looks at the counters.
_LOOK_AGAIN_SECONDS = 0.02
#: How long nothing may be stored before it counts as stuck.
_STUCK_SECONDS = 60.0
#: Rows read by one statement.
_CHUNK = 500


@dataclass(frozen=True, slots=True)
class Stored:
    """When a job was accepted and when its answer was stored, by the database's clock."""

    created_at: datetime
    finished_at: datetime

    @property
    def seconds(self) -> float:
        return (self.finished_at - self.created_at).total_seconds()


def await_stored(database: Database, *, look: Callable[[], None]) -> None:
    """Return when no job waits or runs; `look` is called again and again. RuntimeError when nothing moves."""
    left, moved_at = -1, time.monotonic()
    while (now_left := _num_left(database)) > 0:
        if now_left != left:
            left, moved_at = now_left, time.monotonic()
        if time.monotonic() - moved_at > _STUCK_SECONDS:
            raise RuntimeError(f"{left} jobs are not stored, and none was for {_STUCK_SECONDS:g} s")
        look()
        time.sleep(_LOOK_AGAIN_SECONDS)


def check_answers(database: Database, accepted: Accepted) -> list[Stored]:
    """Return when each job was stored. Raises RuntimeError unless each has one answer, and its own."""
    prompts = _by_job(database, accepted) if accepted.is_list else _only(accepted)
    stored: list[Stored] = []
    for job_ids in _chunks(list(prompts)):
        with database.reading() as session:
            rows = session.execute(
                select(Job, JobResult.body)
                .join(JobResult, JobResult.job_id == Job.id)
                .where(Job.id.in_(job_ids))
            ).all()
        if len(rows) != len(job_ids):
            raise RuntimeError(f"{len(job_ids)} jobs have {len(rows)} answers")
        stored += [_check(row[0], row[1], prompts[row[0].id]) for row in rows]
    return stored


def _check(job: Job, body: str | None, prompt: str) -> Stored:
    if job.status != JobStatus.SUCCEEDED or job.attempt != 1 or job.finished_at is None:
        raise RuntimeError(f"{job.id} is {job.status} after {job.attempt} attempts")
    text = json.loads(body or "")["choices"][0]["text"]
    if text != prompt:
        raise RuntimeError(f"{job.id} asked {prompt!r} and was answered {text!r}")
    return Stored(job.created_at, job.finished_at)


def _only(accepted: Accepted) -> dict[str, str]:
    return {job_id: prompts[0] for job_id, prompts in accepted.prompts.items()}


def _by_job(database: Database, accepted: Accepted) -> dict[str, str]:
    """The prompt of each job of these batches."""
    found: dict[str, str] = {}
    for batch_id, prompts in accepted.prompts.items():
        with database.reading() as session:
            job_ids = session.scalars(select(Job.id).where(Job.batch_id == batch_id).order_by(Job.line)).all()
        found |= dict(zip(job_ids, prompts, strict=True))
    return found


def _num_left(database: Database) -> int:
    waiting = (JobStatus.QUEUED, JobStatus.RUNNING)
    with database.reading() as session:
        return int(
            session.scalar(select(func.sum(JobCount.num_jobs)).where(JobCount.status.in_(waiting))) or 0
        )


def _chunks(job_ids: Sequence[str]) -> list[Sequence[str]]:
    return [job_ids[start : start + _CHUNK] for start in range(0, len(job_ids), _CHUNK)]
