"""Jobs as lines of a batch: which have not ended, and which one counts where a line was tried again."""

from __future__ import annotations

from sqlalchemy import ColumnElement, exists, text
from sqlalchemy.orm import aliased

from models.tables.job import Job

#: The condition on jobs that they are of a batch and have not ended. Written out, as that of their index is:
#: a parameter would tell the planner nothing.
UNFINISHED = text("jobs.batch_id IS NOT NULL AND jobs.status IN ('queued', 'running')")


def is_newest() -> ColumnElement[bool]:
    """The condition on jobs of a batch that no later one has taken over their line."""
    newer = aliased(Job)
    return ~exists().where(
        newer.batch_id == Job.batch_id, newer.line == Job.line, newer.revision > Job.revision
    )
