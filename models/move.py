"""The one way in which a job changes its status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from models.batch_state import settle
from models.database import now
from models.tables.batch_job import BatchJob
from models.tables.job import FINAL_STATUSES, LEGAL_TRANSITIONS, Job, JobStatus
from models.tables.project import JobCount

#: Rows locked by one statement.
_CHUNK = 500


@dataclass(frozen=True, slots=True)
class Move:
    """Where a job goes, and what else changes in its row on the way."""

    to: JobStatus
    values: Mapping[str, Any] = field(default_factory=dict)


#: Looks at a locked row, and at the database's time, and says where the job goes; None leaves it alone.
Decision = Callable[[Job, datetime], Move | None]


def move_jobs(session: Session, job_ids: Iterable[str], decide: Decision) -> list[Job]:
    """Lock these jobs, move those that `decide` sends somewhere, and return the moved ones.

    A move that the table of legal transitions does not know is left out: the job had moved already.
    Counters of projects and batches change with it. Locks are taken in one order everywhere (jobs by
    id, then batches, then counters), so that two transactions never wait for each other.
    """
    moved: list[Job] = []
    counts: Counter[tuple[str, str, str]] = Counter()
    batches: dict[str, list[tuple[JobStatus, Job]]] = {}
    locked = lock_jobs(session, job_ids)
    at = now(session)
    for job in locked:
        move = decide(job, at)
        before = JobStatus(job.status)
        if move is None or move.to not in LEGAL_TRANSITIONS.get(before, frozenset()):
            continue
        _change(job, move)
        moved.append(job)
        counts[job.project_id, job.lane, before] -= 1
        counts[job.project_id, job.lane, move.to] += 1
        if job.batch_id is not None:
            batches.setdefault(job.batch_id, []).append((before, job))
    session.flush()
    _move_in_batches(session, batches, at)
    count_jobs(session, counts)
    return moved


def lock_jobs(session: Session, job_ids: Iterable[str]) -> list[Job]:
    """Lock these jobs' rows in the order of their ids, as everybody does, and return them as they stand."""
    locked: list[Job] = []
    ordered = sorted(set(job_ids))
    for start in range(0, len(ordered), _CHUNK):
        chunk = ordered[start : start + _CHUNK]
        locked += session.scalars(
            select(Job).where(Job.id.in_(chunk)).order_by(Job.id).with_for_update(),
            execution_options={"populate_existing": True},
        )
    return locked


def cancellation(at: datetime) -> Move:
    """How a job ends that its client takes back."""
    return Move(JobStatus.CANCELLED, {"finished_at": at, "lease_until": None, "error_code": "cancelled"})


def count_jobs(session: Session, changes: Mapping[tuple[str, str, str], int]) -> None:
    """Add to the counters of (project, lane, status)."""
    for (project_id, lane, status), change in sorted(changes.items()):
        if change:
            session.execute(
                update(JobCount)
                .where(JobCount.project_id == project_id, JobCount.lane == lane, JobCount.status == status)
                .values(num_jobs=JobCount.num_jobs + change),
                execution_options={"synchronize_session": False},
            )


def _change(job: Job, move: Move) -> None:
    job.status = move.to
    for name, value in move.values.items():
        setattr(job, name, value)


def _move_in_batches(
    session: Session, changes: Mapping[str, list[tuple[JobStatus, Job]]], at: datetime
) -> None:
    # Without the row lock two transactions that finish a batch's last two jobs would each see the
    # other's as still running, and the batch would never complete.
    if not changes:
        return
    locked = session.scalars(
        select(BatchJob).where(BatchJob.id.in_(changes)).order_by(BatchJob.id).with_for_update(),
        execution_options={"populate_existing": True},
    )
    for batch in locked:
        for before, job in changes[batch.id]:
            batch.count(before, -1)
            batch.count(JobStatus(job.status), 1)
            if job.status in FINAL_STATUSES:
                batch.num_prompt_tokens += job.num_prompt_tokens or 0
                batch.num_completion_tokens += job.num_completion_tokens or 0
                batch.num_cached_tokens += job.num_cached_tokens or 0
        settle(batch, at)
    session.flush()
