"""The way of a job through `models`, in short words for tests."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Self

from sqlalchemy import func, select

from models.accept import Acceptance, Submission
from models.backoff import Backoff
from models.consumer import Consumer, Entry
from models.database import Database, now
from models.dispatch import Dispatcher
from models.ids import new_id
from models.lease import ClaimedJob, Grant, WindowRecord, claim
from models.publication import Outcome, publish
from models.queue import JobQueue, Ticket
from models.rescue import rescue
from models.suspects import claim_suspects
from models.tables.batch_job import BatchJob
from models.tables.job import Job, JobStatus, Lane
from models.tables.project import JobCount, Project
from models.validation import JobDraft

MODEL = "tiny"
WINDOW = WindowRecord("max_jobs", 0.01)


def make_drafts(count: int, **values: Any) -> list[JobDraft]:
    """Valid requests with prompts `prompt 0`, `prompt 1`, …"""
    plain = JobDraft("/v1/completions", MODEL, {}, cost_tokens=100)
    return [
        replace(plain, body={"model": MODEL, "prompt": f"prompt {line}"}, line=line, **values)
        for line in range(count)
    ]


def entry_of(job: Job) -> Entry:
    """An entry as the queue would deliver it."""
    return Entry(Lane(job.lane), "1-1", Ticket(job.id, job.cost_tokens))


class Pipeline:
    """A database and a queue, in use already, with everything that works on them."""

    def __init__(self, database: Database, queue: JobQueue, redis_url: str, project_id: str) -> None:
        self.database = database
        self.queue = queue
        self.project_id = project_id
        self._redis_url = redis_url
        self._open = ExitStack()
        # As after the first dispatch: Redis is known to hold all that was published.
        queue.begin_epoch(MODEL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def accept(
        self, count: int | None = None, *, depth: int = 0, project_id: str | None = None, **values: Any
    ) -> str:
        """Accept one job, or a list of `count`; with depth 0 none reaches Redis by itself."""
        key = values.pop("idempotency_key", None)
        submission = Submission(
            project_id or self.project_id,
            make_drafts(count or 1, **values),
            as_batch=count is not None,
            idempotency_key=key,
        )
        return Acceptance(self.database, self.queue, dispatch_depth=depth).accept(submission)

    def new_project(self, name: str) -> str:
        """A further project, with its counters."""
        with self.database.transaction() as session:
            project = Project(id=new_id("proj"), name=name, created_at=now(session))
            session.add(project)
            session.flush()
            session.add_all(
                JobCount(project_id=project.id, lane=lane, status=status)
                for lane in Lane
                for status in JobStatus
            )
            return project.id

    def dispatcher(self, depth: int = 100) -> Dispatcher:
        return Dispatcher(self.database, self.queue, model=MODEL, depth=depth)

    def consumer(self, name: str = "w1") -> Consumer:
        consumer = Consumer(self.queue, self._redis_url, model=MODEL, name=name)
        self._open.callback(consumer.close)
        for lane in Lane:
            self.queue.ensure_group(MODEL, lane)
        return consumer

    def delivered(self, lane: Lane = Lane.STANDARD) -> list[str]:
        """The ids of a lane's entries that no consumer has had yet, in order; they are taken out."""
        consumer = self.consumer(new_id("reader"))
        entries = consumer.read({lane: 10_000})
        consumer.acknowledge(entries)
        return [entry.ticket.job_id for entry in entries]

    def claim(
        self, *job_ids: str, worker_id: str = "w1", lease_seconds: float = 30.0, entry_id: str = "1-1"
    ) -> list[ClaimedJob]:
        """Claim these jobs, or all, as if the queue had delivered them."""
        entries = [entry_of(job)._replace(entry_id=entry_id) for job in self.jobs(*job_ids)]
        if job_ids:
            entries.sort(key=lambda entry: job_ids.index(entry.ticket.job_id))
        return claim(self.database, entries, worker_id=worker_id, lease_seconds=lease_seconds, window=WINDOW)

    def rescue(self) -> list[str]:
        """Rescue what can be, and let no suspect wait."""
        return rescue(self.database, backoff=Backoff(0))

    def claim_suspects(
        self, *, worker_id: str = "w1", lease_seconds: float = 30.0, max_jobs: int = 100
    ) -> list[ClaimedJob]:
        """Claim the next group of suspects."""
        grant = Grant(worker_id, lease_seconds, WINDOW)
        return claim_suspects(self.database, grant, model=MODEL, max_jobs=max_jobs)

    def publish(self, *claimed: ClaimedJob, **values: Any) -> set[str]:
        """Answer these jobs; they succeed unless `values` say otherwise."""
        given = {"status": JobStatus.SUCCEEDED, "body": '{"text":"hi"}', **values}
        return publish(self.database, [Outcome(job.id, job.held.token, **given) for job in claimed])

    def job(self, job_id: str) -> Job:
        return self.jobs(job_id)[0]

    def jobs(self, *job_ids: str) -> list[Job]:
        """These jobs' rows, or all, oldest first."""
        statement = select(Job).order_by(Job.id)
        if job_ids:
            statement = statement.where(Job.id.in_(job_ids))
        with self.database.reading() as session:
            return list(session.scalars(statement))

    def change(self, job_id: str, **values: Any) -> None:
        """Write into a job's row, past all rules."""
        with self.database.transaction() as session:
            job = session.get_one(Job, job_id)
            for name, value in values.items():
                setattr(job, name, value)

    def batch(self, batch_id: str) -> BatchJob:
        with self.database.reading() as session:
            return session.get_one(BatchJob, batch_id)

    def time(self, *, seconds_from_now: float = 0.0) -> datetime:
        """The database's time."""
        with self.database.reading() as session:
            return now(session) + timedelta(seconds=seconds_from_now)

    def counted(self) -> dict[tuple[str, str, str], int]:
        """The counters that are not 0, by project, lane and status."""
        with self.database.reading() as session:
            rows = session.scalars(select(JobCount).where(JobCount.num_jobs != 0))
            return {(row.project_id, row.lane, row.status): row.num_jobs for row in rows}

    def recounted(self) -> dict[tuple[str, str, str], int]:
        """The same, counted from the jobs."""
        key = (Job.project_id, Job.lane, Job.status)
        with self.database.reading() as session:
            rows = session.execute(select(*key, func.count()).group_by(*key)).all()
        return {(row[0], row[1], row[2]): row[3] for row in rows}
