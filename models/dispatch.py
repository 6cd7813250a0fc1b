"""Dispatch: queued rows of SQL into Redis, late and fairly, and again whatever Redis has lost."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import structlog
from sqlalchemy import ColumnElement, and_, exists, func, literal_column, select, update
from sqlalchemy.orm import Session

from models.database import Database, now
from models.dispatch_order import next_jobs
from models.failpoints import failpoint
from models.fairness import deficit_round_robin
from models.move import Move, move_jobs
from models.queue import JobQueue, Ticket
from models.tables.job import IS_NOT_HELD, Job, JobStatus, Lane
from models.tables.project import JobCount
from models.tables.root import UtcMicroseconds

_log = structlog.get_logger()

#: Cost that a project may spend before the next one's turn. The smallest there is: places in Redis come free
#: few at a time, and with larger turns the first project would take them all.
_QUANTUM_TOKENS = 1
#: An entry younger than this may still be on its way. Redis seldom takes longer; if it does, the job has two
#: entries, and the second one is dropped at its claim.
_ARRIVAL_SECONDS = 1.0
#: Overdue jobs moved by one transaction, and transactions in one go.
_CHUNK = 500
_MAX_CHUNKS = 20


class Dispatcher:
    """Keeps a model's streams filled. Needs no leader: any number may run at once.

    Every method raises DatabaseUnavailable or QueueUnavailable, and may be called again at any time.
    """

    def __init__(self, database: Database, queue: JobQueue, *, model: str, depth: int) -> None:
        self._database = database
        self._queue = queue
        self._model = model
        self._depth = depth

    def dispatch(self) -> int:
        """Fill every lane up to its depth and return how many jobs were published."""
        if self._queue.begin_epoch(self._model):
            self._forget_entries()
        return sum(self._fill(lane) for lane in Lane)

    def reconcile(self) -> int:
        """Find queued jobs whose entry is not in Redis, owe them one again, and return how many they are.

        Reads no more rows than a lane keeps entries, however many jobs wait in SQL.
        """
        missing = 0
        for lane in Lane:
            with self._database.reading() as session:
                before = now(session) - timedelta(seconds=_ARRIVAL_SECONDS)
                dispatched = set(session.scalars(select(Job.id).where(self._dispatched(lane, before))))
            lost = dispatched - self._queue.job_ids(self._model, lane) if dispatched else set()
            if lost:
                missing += len(lost)
                self._owe(lane, lost)
        if missing:
            _log.warning("entries_missing", model=self._model, num_jobs=missing)
        return missing

    def expire(self) -> list[str]:
        """Move queued jobs whose deadline has passed to `expired` and return their ids.

        All of them, in short transactions, unless they are very many: the rest is for the next time.
        """
        expired: list[str] = []
        for _ in range(_MAX_CHUNKS):
            num_overdue, moved = self._expire_chunk()
            expired += moved
            if num_overdue < _CHUNK:
                break
        return expired

    def _expire_chunk(self) -> tuple[int, list[str]]:
        with self._database.transaction() as session:
            overdue = session.scalars(
                select(Job.id)
                .where(Job.status == JobStatus.QUEUED, Job.deadline_at <= now(session))
                .order_by(Job.deadline_at)
                .limit(_CHUNK)
            ).all()
            moved = move_jobs(
                session,
                overdue,
                lambda job, at: (
                    Move(JobStatus.EXPIRED, {"finished_at": at, "error_code": "deadline_exceeded"})
                    if job.status == JobStatus.QUEUED
                    else None
                ),
            )
            return len(overdue), [job.id for job in moved]

    def _fill(self, lane: Lane) -> int:
        projects = self._waiting_projects(lane)
        free = self._depth - self._queue.depth(self._model, lane) if projects else 0
        if free <= 0:
            return 0
        chosen = self._choose(lane, projects, free)
        if chosen:
            failpoint("dispatch_after_commit")
            self._queue.append(self._model, lane, [Ticket.of(job) for job in chosen])
            failpoint("dispatch_after_xadd")
        return len(chosen)

    def _choose(self, lane: Lane, projects: Sequence[str], free: int) -> list[Job]:
        """Mark the next jobs of these projects as dispatched, at most `free`, and return them."""
        present = self._queue.job_ids(self._model, lane) if len(projects) > 1 else set()
        with self._database.transaction() as session:
            spent = _costs(session, present)
            queues = {project_id: self._waiting(session, project_id, lane, free) for project_id in projects}
            chosen = deficit_round_robin(
                queues, cost=lambda job: job.cost_tokens, spent=spent, quantum=_QUANTUM_TOKENS, limit=free
            )
            at = now(session)
            for job in chosen:
                job.dispatched_at = at
            if chosen:
                failpoint("dispatch_before_commit")
            return chosen

    def _waiting_projects(self, lane: Lane) -> Sequence[str]:
        with self._database.reading() as session:
            return session.scalars(
                select(JobCount.project_id)
                .where(
                    JobCount.lane == lane,
                    JobCount.status == JobStatus.QUEUED,
                    JobCount.num_jobs > 0,
                    # Jobs that are held, or in Redis already, wait for nothing here.
                    exists().where(self._owed(lane), Job.project_id == JobCount.project_id),
                )
                .order_by(JobCount.project_id)
            ).all()

    def _waiting(self, session: Session, project_id: str, lane: Lane, limit: int) -> list[Job]:
        """Lock and return a project's next jobs."""
        # The plus keeps SQLite from reading by `ix_jobs_available` instead, and sorting all that it finds.
        available_at = literal_column("+jobs.available_at", UtcMicroseconds)
        waiting = and_(
            self._owed(lane),
            Job.project_id == project_id,
            # Suspects are taken in SQL.
            Job.isolation == 0,
            available_at <= now(session),
        )
        return next_jobs(session, waiting, lane=lane, limit=limit)

    def _forget_entries(self) -> None:
        _log.info("queue_was_empty", model=self._model)
        for lane in Lane:
            self._owe(lane, None)

    def _owe(self, lane: Lane, job_ids: set[str] | None) -> None:
        """Clear `dispatched_at` of these queued jobs (None: of all), so that they are published anew."""
        with self._database.transaction() as session:
            statement = update(Job).where(self._dispatched(lane, None)).values(dispatched_at=None)
            if job_ids is not None:
                statement = statement.where(Job.id.in_(job_ids))
            session.execute(statement, execution_options={"synchronize_session": False})

    def _owed(self, lane: Lane) -> ColumnElement[bool]:
        return and_(
            Job.model == self._model,
            Job.lane == lane,
            Job.status == JobStatus.QUEUED,
            Job.dispatched_at.is_(None),
            IS_NOT_HELD,
        )

    def _dispatched(self, lane: Lane, before: datetime | None) -> ColumnElement[bool]:
        rows = and_(
            Job.model == self._model,
            Job.lane == lane,
            Job.status == JobStatus.QUEUED,
            Job.dispatched_at.is_not(None),
        )
        return rows if before is None else and_(rows, Job.dispatched_at < before)


def _costs(session: Session, job_ids: set[str]) -> dict[str, int]:
    """Sum up by project what these jobs cost."""
    rows = session.execute(
        select(Job.project_id, func.sum(Job.cost_tokens)).where(Job.id.in_(job_ids)).group_by(Job.project_id)
    )
    return {project_id: int(cost) for project_id, cost in rows}
