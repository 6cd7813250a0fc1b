"""Projects, their keys, and what is kept per project."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, Text
from sqlalchemy.orm import Mapped, mapped_column

from models.tables.root import Base


class Project(Base):
    """Who a job belongs to. Nothing of one project is visible to another."""

    __tablename__ = "projects"

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    name: Mapped[str] = mapped_column(Text, unique=True)
    created_at: Mapped[datetime]


class ApiKey(Base):
    """A key of a project; only its SHA-256 is kept, and a hint to tell keys apart."""

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    name: Mapped[str] = mapped_column(Text)
    hash: Mapped[str] = mapped_column(Text, unique=True)
    hint: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]


class IdempotencyKey(Base):
    """A client's promise that requests under this key are one and the same."""

    __tablename__ = "idempotency_keys"

    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), primary_key=True)
    key: Mapped[str] = mapped_column(Text, primary_key=True)
    request_hash: Mapped[str] = mapped_column(Text)
    resource_id: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(index=True)


class JobCount(Base):
    """How many jobs of a project and lane are in a status; kept in the transaction that moves them."""

    __tablename__ = "job_counts"

    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), primary_key=True)
    lane: Mapped[str] = mapped_column(Text, primary_key=True)
    status: Mapped[str] = mapped_column(Text, primary_key=True)
    num_jobs: Mapped[int] = mapped_column(default=0)
