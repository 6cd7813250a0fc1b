"""All tables together; importing this fills the metadata that migrations are compared with."""

from models.tables import batch_job, chore, file, incident, job, project, worker
from models.tables.root import Base

METADATA = Base.metadata

__all__ = ["METADATA", "batch_job", "chore", "file", "incident", "job", "project", "worker"]
