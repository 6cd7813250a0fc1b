"""All tables together; importing this fills the metadata that migrations are compared with."""

from models.tables import batch, job, project, worker
from models.tables.base import Base

METADATA = Base.metadata

__all__ = ["METADATA", "batch", "job", "project", "worker"]
