"""What is known of a job that was tried before: crashes it was alone in, and errors it was retried after."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("crashes_alone", "num_retries"):
        op.add_column("jobs", sa.Column(name, sa.Integer(), nullable=False, server_default="0"))
    op.create_index(
        "ix_jobs_suspects",
        "jobs",
        ["model", "available_at", "id"],
        unique=False,
        sqlite_where=sa.text("status = 'queued' AND isolation > 0"),
        postgresql_where=sa.text("status = 'queued' AND isolation > 0"),
    )
    op.create_index(
        "ix_jobs_retry_of",
        "jobs",
        ["retry_of"],
        unique=True,
        sqlite_where=sa.text("retry_of IS NOT NULL"),
        postgresql_where=sa.text("retry_of IS NOT NULL"),
    )


def downgrade() -> None:
    op.drop_index("ix_jobs_retry_of", "jobs")
    op.drop_index("ix_jobs_suspects", "jobs")
    for name in ("num_retries", "crashes_alone"):
        op.drop_column("jobs", name)
