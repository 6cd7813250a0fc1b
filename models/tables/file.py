"""Files: JSONL in and out, and uploads in parts. The bytes are blobs beside the database."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from sqlalchemy import BigInteger, ForeignKey, Index, Text, text
from sqlalchemy.orm import Mapped, mapped_column

from models.tables.root import Base


class FilePurpose(StrEnum):
    """What a file is for, in OpenAI's words."""

    BATCH = "batch"
    BATCH_OUTPUT = "batch_output"


class StoredFile(Base):
    """A file of a project: the bytes of its parts, one after the other. Never changed once it is ready."""

    __tablename__ = "files"

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    purpose: Mapped[str] = mapped_column(Text)
    filename: Mapped[str] = mapped_column(Text)
    #: Of the parts that are there so far.
    num_bytes: Mapped[int] = mapped_column(BigInteger, default=0)
    num_lines: Mapped[int] = mapped_column(default=0)
    created_at: Mapped[datetime]
    #: NULL while it is still being written: then nobody sees it.
    ready_at: Mapped[datetime | None]
    expires_at: Mapped[datetime | None]
    #: Its blobs go next, then the row.
    deleted_at: Mapped[datetime | None]

    __table_args__ = (
        Index("ix_files_project_id", "project_id", "id"),
        Index(
            "ix_files_expires_at",
            "expires_at",
            sqlite_where=text("expires_at IS NOT NULL"),
            postgresql_where=text("expires_at IS NOT NULL"),
        ),
        Index(
            "ix_files_deleted_at",
            "deleted_at",
            sqlite_where=text("deleted_at IS NOT NULL"),
            postgresql_where=text("deleted_at IS NOT NULL"),
        ),
    )


class FilePart(Base):
    """A run of a file's bytes: one blob."""

    __tablename__ = "file_parts"

    file_id: Mapped[str] = mapped_column(ForeignKey("files.id"), primary_key=True)
    #: From 0, in the order of the bytes.
    number: Mapped[int] = mapped_column(primary_key=True)
    #: The blob's name in the store.
    blob: Mapped[str] = mapped_column(Text)
    num_bytes: Mapped[int] = mapped_column(BigInteger)
    sha256: Mapped[str] = mapped_column(Text)


class LooseBlob(Base):
    """A blob that is a part of nothing: it is being written, or its file is gone."""

    __tablename__ = "loose_blobs"

    blob: Mapped[str] = mapped_column(Text, primary_key=True)
    #: When it is removed, if it is not a part of something by then.
    due_at: Mapped[datetime] = mapped_column(index=True)


class UploadStatus(StrEnum):
    """Where an upload in parts stands, in OpenAI's words."""

    PENDING = "pending"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class Upload(Base):
    """A file that comes in parts, each in a request of its own."""

    __tablename__ = "uploads"

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    status: Mapped[str] = mapped_column(Text)
    purpose: Mapped[str] = mapped_column(Text)
    filename: Mapped[str] = mapped_column(Text)
    mime_type: Mapped[str] = mapped_column(Text)
    #: How many bytes the client has announced.
    num_bytes: Mapped[int] = mapped_column(BigInteger)
    #: Of the file that comes of it.
    expires_after_seconds: Mapped[int | None]
    file_id: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime]

    __table_args__ = (
        Index(
            "ix_uploads_pending",
            "expires_at",
            sqlite_where=text("status = 'pending'"),
            postgresql_where=text("status = 'pending'"),
        ),
    )


class UploadPart(Base):
    """One part of an upload, as it came: one blob."""

    __tablename__ = "upload_parts"

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    upload_id: Mapped[str] = mapped_column(ForeignKey("uploads.id"), index=True)
    blob: Mapped[str] = mapped_column(Text)
    num_bytes: Mapped[int] = mapped_column(BigInteger)
    sha256: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime]
