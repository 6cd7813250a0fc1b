"""Which queued jobs should have an entry in Redis: looked at every second, so not by a scan."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(
        "ix_jobs_dispatched",
        "jobs",
        ["model", "lane", "dispatched_at"],
        unique=False,
        sqlite_where=sa.text("status = 'queued' AND dispatched_at IS NOT NULL"),
        postgresql_where=sa.text("status = 'queued' AND dispatched_at IS NOT NULL"),
    )


def downgrade() -> None:
    op.drop_index("ix_jobs_dispatched", "jobs")
