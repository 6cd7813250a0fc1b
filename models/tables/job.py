"""Jobs: one inference request each, with its status, and its texts in two tables beside it."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from sqlalchemy import BigInteger, ForeignKey, Index, Text, UniqueConstraint, literal, text
from sqlalchemy.orm import Mapped, mapped_column

from models.tables.root import Base


class JobStatus(StrEnum):
    """Where a job stands."""

    #: Accepted; waits for a worker.
    QUEUED = "queued"
    #: A worker holds a lease on it.
    RUNNING = "running"
    #: Answered; the result is stored.
    SUCCEEDED = "succeeded"
    #: Cannot be answered; the error says why.
    FAILED = "failed"
    #: Taken back by the client.
    CANCELLED = "cancelled"
    #: Its deadline passed first.
    EXPIRED = "expired"


#: From each status, those a job may go to. What is absent is final.
LEGAL_TRANSITIONS: dict[JobStatus, frozenset[JobStatus]] = {
    JobStatus.QUEUED: frozenset({JobStatus.RUNNING, JobStatus.CANCELLED, JobStatus.EXPIRED}),
    JobStatus.RUNNING: frozenset(
        {
            JobStatus.QUEUED,
            JobStatus.SUCCEEDED,
            JobStatus.FAILED,
            JobStatus.CANCELLED,
            JobStatus.EXPIRED,
        }
    ),
}

#: Statuses that no job ever leaves.
FINAL_STATUSES = frozenset(JobStatus) - LEGAL_TRANSITIONS.keys()


class Lane(StrEnum):
    """How urgent a job is."""

    INTERACTIVE = "interactive"
    STANDARD = "standard"
    BULK = "bulk"


class Job(Base):
    """The narrow, hot row of a job. Texts are in `job_requests` and `job_results`."""

    __tablename__ = "jobs"

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    batch_id: Mapped[str | None] = mapped_column(ForeignKey("batches.id"))
    #: Position in the batch, from 0.
    line: Mapped[int | None]
    #: 0 for the first try; a retry of the same line counts up.
    revision: Mapped[int] = mapped_column(default=0)
    custom_id: Mapped[str | None] = mapped_column(Text)
    endpoint: Mapped[str] = mapped_column(Text)
    model: Mapped[str] = mapped_column(Text)
    lane: Mapped[str] = mapped_column(Text)
    status: Mapped[str] = mapped_column(Text, default=JobStatus.QUEUED)
    #: Estimate made at accept: prompt tokens and the most that may be generated.
    cost_tokens: Mapped[int]
    #: Drawn at accept when the client gave none, so that a recomputed job gives the same text.
    seed: Mapped[int] = mapped_column(BigInteger)
    #: Where it stands among jobs of one project, lane and deadline: of a batch's lines, those that begin
    #: alike share one, so that they are computed beside each other.
    prefix_key: Mapped[str | None] = mapped_column(Text)
    deadline_at: Mapped[datetime | None]
    #: Not before this time.
    available_at: Mapped[datetime]
    #: 1 while its batch is paused: then nobody begins with it. An integer, which both databases write alike
    #: in the condition of an index.
    held: Mapped[int] = mapped_column(default=0, server_default="0")
    #: When its entry was (or was about to be) put into Redis; NULL means the dispatcher owes it one.
    dispatched_at: Mapped[datetime | None]
    #: The Redis entry under which it was claimed.
    entry_id: Mapped[str | None] = mapped_column(Text)
    #: How often it was claimed; a give-back takes one off again.
    attempt: Mapped[int] = mapped_column(default=0)
    #: Fencing token: grows with every claim, and a result counts only under the newest.
    token: Mapped[int] = mapped_column(default=0)
    owner: Mapped[str | None] = mapped_column(Text)
    lease_until: Mapped[datetime | None]
    #: 0: runs with any others. Else a suspect of a crash: runs with at most so many, suspects like itself.
    isolation: Mapped[int] = mapped_column(default=0)
    #: Crashes in which it was the only job.
    crashes_alone: Mapped[int] = mapped_column(default=0, server_default="0")
    #: How often it was queued again after an error that might not come again.
    num_retries: Mapped[int] = mapped_column(default=0, server_default="0")
    window_id: Mapped[str | None] = mapped_column(Text)
    #: The finished job that this one was made from, to try it again; a job has one such successor at most.
    retry_of: Mapped[str | None] = mapped_column(Text)
    error_code: Mapped[str | None] = mapped_column(Text)
    num_prompt_tokens: Mapped[int | None]
    num_completion_tokens: Mapped[int | None]
    num_cached_tokens: Mapped[int | None]
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    first_token_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]

    __table_args__ = (
        UniqueConstraint("batch_id", "line", "revision", name="uq_jobs_batch_line_revision"),
        Index("ix_jobs_project_id", "project_id", "id"),
        Index(
            "ix_jobs_queued",
            "model",
            "lane",
            "id",
            sqlite_where=text("status = 'queued'"),
            postgresql_where=text("status = 'queued'"),
        ),
        Index(
            "ix_jobs_available",
            "model",
            "available_at",
            sqlite_where=text("status = 'queued' AND held = 0"),
            postgresql_where=text("status = 'queued' AND held = 0"),
        ),
        Index(
            "ix_jobs_undispatched",
            "model",
            "lane",
            "project_id",
            "deadline_at",
            "prefix_key",
            "id",
            sqlite_where=text("status = 'queued' AND dispatched_at IS NULL AND held = 0"),
            postgresql_where=text("status = 'queued' AND dispatched_at IS NULL AND held = 0"),
        ),
        Index(
            "ix_jobs_custom_id",
            "batch_id",
            "custom_id",
            sqlite_where=text("batch_id IS NOT NULL AND custom_id IS NOT NULL"),
            postgresql_where=text("batch_id IS NOT NULL AND custom_id IS NOT NULL"),
        ),
        # How far a batch has come: its first line that has not ended, its first that waits.
        Index(
            "ix_jobs_unfinished",
            "batch_id",
            "line",
            sqlite_where=text("batch_id IS NOT NULL AND status IN ('queued', 'running')"),
            postgresql_where=text("batch_id IS NOT NULL AND status IN ('queued', 'running')"),
        ),
        # What Redis should hold: a few windows, of however many jobs wait.
        Index(
            "ix_jobs_dispatched",
            "model",
            "lane",
            "dispatched_at",
            sqlite_where=text("status = 'queued' AND dispatched_at IS NOT NULL"),
            postgresql_where=text("status = 'queued' AND dispatched_at IS NOT NULL"),
        ),
        Index(
            "ix_jobs_suspects",
            "model",
            "available_at",
            "id",
            sqlite_where=text("status = 'queued' AND isolation > 0"),
            postgresql_where=text("status = 'queued' AND isolation > 0"),
        ),
        Index(
            "ix_jobs_retry_of",
            "retry_of",
            unique=True,
            sqlite_where=text("retry_of IS NOT NULL"),
            postgresql_where=text("retry_of IS NOT NULL"),
        ),
        Index(
            "ix_jobs_lease",
            "lease_until",
            sqlite_where=text("status = 'running'"),
            postgresql_where=text("status = 'running'"),
        ),
        Index(
            "ix_jobs_deadline",
            "deadline_at",
            sqlite_where=text("status = 'queued' AND deadline_at IS NOT NULL"),
            postgresql_where=text("status = 'queued' AND deadline_at IS NOT NULL"),
        ),
    )


#: Not of a paused batch. Written out, as the conditions of indexes are: a parameter would tell no planner
#: that they serve.
IS_NOT_HELD = Job.held == literal(0, literal_execute=True)


class JobRequest(Base):
    """What the client sent: the body in OpenAI's shape, as JSON text, and metadata."""

    __tablename__ = "job_requests"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    body: Mapped[str] = mapped_column(Text)
    metadata_text: Mapped[str | None] = mapped_column("metadata", Text)
    callback_url: Mapped[str | None] = mapped_column(Text)


class JobResult(Base):
    """What a finished job left: the response body or the error, as JSON text. Inserted once."""

    __tablename__ = "job_results"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    body: Mapped[str | None] = mapped_column(Text)
    error: Mapped[str | None] = mapped_column(Text)
