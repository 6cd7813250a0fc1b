"""Batches: the parent of many jobs that came in together."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from sqlalchemy import BigInteger, ForeignKey, Index, Text, false, text
from sqlalchemy.orm import Mapped, mapped_column

from models.tables.job import FINAL_STATUSES, JobStatus
from models.tables.root import Base


class BatchStatus(StrEnum):
    """Where a batch stands, in OpenAI's words."""

    VALIDATING = "validating"
    FAILED = "failed"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"


#: Statuses that a batch leaves by itself, sooner or later. The others are final, but for a retry.
OPEN_STATUSES = frozenset(
    {BatchStatus.VALIDATING, BatchStatus.IN_PROGRESS, BatchStatus.FINALIZING, BatchStatus.CANCELLING}
)

#: The same as SQL, written so that both databases find the index by it.
IS_OPEN = text("status IN ('validating', 'in_progress', 'finalizing', 'cancelling')")

_FROM_FILE = text("input_file_id IS NOT NULL")


class BatchJob(Base):
    """A parent of many jobs, from an inline list or from a file.

    Its counters change under its row lock; once all lines are jobs they sum up to `total`. What it should be
    like (lane, deadline, paused, cancelled) stands here first; background work then brings its jobs into
    line, chunk by chunk. The cursors say how far that has come, in lines; NULL: there is nothing to do.
    """

    __tablename__ = "batches"

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    status: Mapped[str] = mapped_column(Text)
    total: Mapped[int]
    queued: Mapped[int]
    running: Mapped[int] = mapped_column(default=0)
    succeeded: Mapped[int] = mapped_column(default=0)
    failed: Mapped[int] = mapped_column(default=0)
    cancelled: Mapped[int] = mapped_column(default=0)
    expired: Mapped[int] = mapped_column(default=0)
    num_prompt_tokens: Mapped[int] = mapped_column(BigInteger, default=0)
    num_completion_tokens: Mapped[int] = mapped_column(BigInteger, default=0)
    metadata_text: Mapped[str | None] = mapped_column("metadata", Text)
    created_at: Mapped[datetime]
    completed_at: Mapped[datetime | None]
    #: Since when its queued jobs are held.
    paused_at: Mapped[datetime | None]

    # Of a file; a list's requests have each their own.
    input_file_id: Mapped[str | None] = mapped_column(Text)
    endpoint: Mapped[str | None] = mapped_column(Text)
    model: Mapped[str | None] = mapped_column(Text)
    lane: Mapped[str | None] = mapped_column(Text)
    #: As the client wrote it, as in `24h`.
    completion_window: Mapped[str | None] = mapped_column(Text)
    #: Its jobs may not begin before this time.
    available_at: Mapped[datetime | None]
    #: The deadline of its jobs.
    expires_at: Mapped[datetime | None]
    validate_only: Mapped[bool] = mapped_column(default=False, server_default=false())
    #: What was wrong with the file: a JSON list of {code, line, message, param}; and what validation found.
    errors_text: Mapped[str | None] = mapped_column("errors", Text)
    report_text: Mapped[str | None] = mapped_column("report", Text)
    num_cached_tokens: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    #: Sum of what its jobs are estimated to cost.
    cost_tokens: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")

    in_progress_at: Mapped[datetime | None]
    #: When its last job ended, so that its files can be written.
    finalizing_at: Mapped[datetime | None]
    failed_at: Mapped[datetime | None]
    expired_at: Mapped[datetime | None]
    cancelling_at: Mapped[datetime | None]
    cancelled_at: Mapped[datetime | None]

    output_file_id: Mapped[str | None] = mapped_column(Text)
    error_file_id: Mapped[str | None] = mapped_column(Text)
    output_expires_after_seconds: Mapped[int | None]
    #: 1 for its first files; each retry makes the next.
    output_version: Mapped[int] = mapped_column(default=0, server_default="0")

    #: The next line of the file to make a job of, and where it begins.
    split_line: Mapped[int | None]
    split_offset: Mapped[int | None] = mapped_column(BigInteger)
    #: The next line whose job is brought into line with the batch.
    sweep_line: Mapped[int | None]
    #: The next line that is looked at for a retry.
    retry_line: Mapped[int | None]
    #: In which statuses such a line has ended: a JSON list.
    retry_statuses: Mapped[str | None] = mapped_column(Text)
    #: The next line to write into the files that are being written.
    assembly_line: Mapped[int | None]
    assembly_output_id: Mapped[str | None] = mapped_column(Text)
    assembly_error_id: Mapped[str | None] = mapped_column(Text)

    #: Whoever works on it proves by the token that it still holds it, and renews before the lease runs out.
    work_token: Mapped[int] = mapped_column(default=0, server_default="0")
    work_until: Mapped[datetime | None]
    #: Of several batches with work, the one that was longest without goes first.
    worked_at: Mapped[datetime | None]

    __table_args__ = (
        Index("ix_batches_project_id", "project_id", "id"),
        # Whether a file is still read.
        Index(
            "ix_batches_input_file_id",
            "input_file_id",
            sqlite_where=_FROM_FILE,
            postgresql_where=_FROM_FILE,
        ),
        Index("ix_batches_open", "worked_at", sqlite_where=IS_OPEN, postgresql_where=IS_OPEN),
    )

    @property
    def num_split(self) -> int:
        """How many of its lines are jobs by now."""
        return self.total if self.split_line is None else self.split_line

    def count(self, status: JobStatus, change: int) -> None:
        """Add `change` to the counter of one job status."""
        setattr(self, status.value, getattr(self, status.value) + change)

    @property
    def num_finished(self) -> int:
        """How many of its jobs have reached a final status."""
        return sum(getattr(self, status.value) for status in FINAL_STATUSES)
