"""Files, uploads, and batches that come from a file; jobs that are held while their batch is paused."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_OPEN = sa.text("status IN ('validating', 'in_progress', 'finalizing', 'cancelling')")
_FROM_FILE = sa.text("input_file_id IS NOT NULL")
_QUEUED = sa.text("status = 'queued'")
_FREE = sa.text("status = 'queued' AND held = 0")
_UNDISPATCHED = sa.text("status = 'queued' AND dispatched_at IS NULL")
_FREE_UNDISPATCHED = sa.text("status = 'queued' AND dispatched_at IS NULL AND held = 0")
_NAMED = sa.text("batch_id IS NOT NULL AND custom_id IS NOT NULL")
_UNFINISHED = sa.text("batch_id IS NOT NULL AND status IN ('queued', 'running')")

_BATCH_TEXTS = (
    "input_file_id",
    "endpoint",
    "model",
    "lane",
    "completion_window",
    "errors",
    "report",
    "output_file_id",
    "retry_statuses",
    "error_file_id",
    "assembly_output_id",
    "assembly_error_id",
)
_BATCH_TIMES = (
    "available_at",
    "expires_at",
    "in_progress_at",
    "finalizing_at",
    "failed_at",
    "expired_at",
    "cancelling_at",
    "cancelled_at",
    "work_until",
    "worked_at",
)
_BATCH_LINES = ("split_line", "sweep_line", "retry_line", "assembly_line", "output_expires_after_seconds")
_BATCH_SUMS = ("num_cached_tokens", "cost_tokens")
_BATCH_NUMBERS = ("output_version", "work_token")


def upgrade() -> None:
    _make_files()
    _make_uploads()
    for column in _batch_columns():
        op.add_column("batches", column)
    op.create_index(
        "ix_batches_input_file_id",
        "batches",
        ["input_file_id"],
        sqlite_where=_FROM_FILE,
        postgresql_where=_FROM_FILE,
    )
    op.create_index("ix_batches_open", "batches", ["worked_at"], sqlite_where=_OPEN, postgresql_where=_OPEN)
    op.add_column("jobs", sa.Column("held", sa.Integer(), nullable=False, server_default="0"))
    op.drop_index("ix_jobs_available", "jobs")
    _index("ix_jobs_available", ["model", "available_at"], _FREE)
    op.drop_index("ix_jobs_undispatched", "jobs")
    _index(
        "ix_jobs_undispatched",
        ["model", "lane", "project_id", "deadline_at", "prefix_key", "id"],
        _FREE_UNDISPATCHED,
    )
    _index("ix_jobs_custom_id", ["batch_id", "custom_id"], _NAMED)
    _index("ix_jobs_unfinished", ["batch_id", "line"], _UNFINISHED)


def downgrade() -> None:
    op.drop_index("ix_jobs_unfinished", "jobs")
    op.drop_index("ix_jobs_custom_id", "jobs")
    op.drop_index("ix_jobs_undispatched", "jobs")
    _index("ix_jobs_undispatched", ["model", "lane", "project_id", "deadline_at", "id"], _UNDISPATCHED)
    op.drop_index("ix_jobs_available", "jobs")
    _index("ix_jobs_available", ["model", "available_at"], _QUEUED)
    op.drop_column("jobs", "held")
    op.drop_index("ix_batches_open", "batches")
    op.drop_index("ix_batches_input_file_id", "batches")
    for column in reversed(_batch_columns()):
        op.drop_column("batches", column.name)
    for table in ("upload_parts", "uploads", "loose_blobs", "file_parts", "files"):
        op.drop_table(table)


def _index(name: str, columns: list[str], where: sa.TextClause) -> None:
    op.create_index(name, "jobs", columns, sqlite_where=where, postgresql_where=where)


def _batch_columns() -> list[sa.Column[Any]]:
    return [
        *(sa.Column(name, sa.Text()) for name in _BATCH_TEXTS),
        *(sa.Column(name, sa.BigInteger()) for name in _BATCH_TIMES),
        *(sa.Column(name, sa.Integer()) for name in _BATCH_LINES),
        sa.Column("split_offset", sa.BigInteger()),
        *(sa.Column(name, sa.BigInteger(), nullable=False, server_default="0") for name in _BATCH_SUMS),
        *(sa.Column(name, sa.Integer(), nullable=False, server_default="0") for name in _BATCH_NUMBERS),
        sa.Column("validate_only", sa.Boolean(), nullable=False, server_default=sa.false()),
    ]


def _make_files() -> None:
    op.create_table(
        "files",
        sa.Column("id", sa.Text(), primary_key=True),
        sa.Column("project_id", sa.Text(), sa.ForeignKey("projects.id"), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("filename", sa.Text(), nullable=False),
        sa.Column("num_bytes", sa.BigInteger(), nullable=False),
        sa.Column("num_lines", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("ready_at", sa.BigInteger()),
        sa.Column("expires_at", sa.BigInteger()),
        sa.Column("deleted_at", sa.BigInteger()),
    )
    op.create_index("ix_files_project_id", "files", ["project_id", "id"])
    for name in ("expires_at", "deleted_at"):
        where = sa.text(f"{name} IS NOT NULL")
        op.create_index(f"ix_files_{name}", "files", [name], sqlite_where=where, postgresql_where=where)
    op.create_table(
        "file_parts",
        sa.Column("file_id", sa.Text(), sa.ForeignKey("files.id"), primary_key=True),
        sa.Column("number", sa.Integer(), primary_key=True),
        sa.Column("blob", sa.Text(), nullable=False),
        sa.Column("num_bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
    )
    op.create_table(
        "loose_blobs",
        sa.Column("blob", sa.Text(), primary_key=True),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
    )
    op.create_index("ix_loose_blobs_due_at", "loose_blobs", ["due_at"])


def _make_uploads() -> None:
    op.create_table(
        "uploads",
        sa.Column("id", sa.Text(), primary_key=True),
        sa.Column("project_id", sa.Text(), sa.ForeignKey("projects.id"), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("filename", sa.Text(), nullable=False),
        sa.Column("mime_type", sa.Text(), nullable=False),
        sa.Column("num_bytes", sa.BigInteger(), nullable=False),
        sa.Column("expires_after_seconds", sa.Integer()),
        sa.Column("file_id", sa.Text()),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
    )
    op.create_index("ix_uploads_expires_at", "uploads", ["expires_at"])
    op.create_table(
        "upload_parts",
        sa.Column("id", sa.Text(), primary_key=True),
        sa.Column("upload_id", sa.Text(), sa.ForeignKey("uploads.id"), nullable=False),
        sa.Column("blob", sa.Text(), nullable=False),
        sa.Column("num_bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
    )
    op.create_index("ix_upload_parts_upload_id", "upload_parts", ["upload_id"])
