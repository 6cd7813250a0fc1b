"""What tells whether work goes on: when was last claimed and computed, what waits longest, incidents."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "incident_counts",
        sa.Column("incident", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("incident", "model", name=op.f("pk_incident_counts")),
    )
    op.add_column("workers", sa.Column("progress_at", sa.BigInteger(), nullable=True))
    op.add_column("windows", sa.Column("model", sa.Text(), nullable=True))
    op.create_index("ix_windows_model", "windows", ["model", "closed_at"], unique=False)
    op.create_index(
        "ix_jobs_available",
        "jobs",
        ["model", "available_at"],
        unique=False,
        sqlite_where=sa.text("status = 'queued'"),
        postgresql_where=sa.text("status = 'queued'"),
    )


def downgrade() -> None:
    op.drop_index("ix_jobs_available", "jobs")
    op.drop_index("ix_windows_model", "windows")
    op.drop_column("windows", "model")
    op.drop_column("workers", "progress_at")
    op.drop_table("incident_counts")
