"""Batches: the parent of many jobs that came in together."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from sqlalchemy import BigInteger, ForeignKey, Index, Text
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


class BatchJob(Base):
    """A parent of many jobs. Its counters change under its row lock and always sum up to `total`."""

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
    paused_at: Mapped[datetime | None]

    __table_args__ = (Index("ix_batches_project_id", "project_id", "id"),)

    def count(self, status: JobStatus, change: int) -> None:
        """Add `change` to the counter of one job status."""
        setattr(self, status.value, getattr(self, status.value) + change)

    @property
    def num_finished(self) -> int:
        """How many of its jobs have reached a final status."""
        return sum(getattr(self, status.value) for status in FINAL_STATUSES)
