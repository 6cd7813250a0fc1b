"""Workers that have registered, and the windows they took."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, Index, Text
from sqlalchemy.orm import Mapped, mapped_column

from models.tables.root import Base


class Worker(Base):
    """A worker process; alive as long as its heartbeat is fresh."""

    __tablename__ = "workers"

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    host: Mapped[str] = mapped_column(Text)
    pid: Mapped[int]
    model: Mapped[str] = mapped_column(Text)
    max_model_len: Mapped[int]
    device: Mapped[str] = mapped_column(Text)
    version: Mapped[str] = mapped_column(Text)
    heartbeat_at: Mapped[datetime]
    stats: Mapped[str | None] = mapped_column(Text)
    #: When its engine was last seen computing.
    progress_at: Mapped[datetime | None]


class Window(Base):
    """The jobs that a worker took from the queue together, and why the window closed."""

    __tablename__ = "windows"

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    worker_id: Mapped[str] = mapped_column(Text)
    #: NULL in rows of older versions.
    model: Mapped[str | None] = mapped_column(Text)
    reason: Mapped[str] = mapped_column(Text)
    num_jobs: Mapped[int]
    num_tokens: Mapped[int] = mapped_column(BigInteger)
    opened_at: Mapped[datetime]
    closed_at: Mapped[datetime] = mapped_column(index=True)

    __table_args__ = (Index("ix_windows_model", "model", "closed_at"),)
