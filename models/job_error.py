"""Why a job has no answer: as it is stored beside the job, and as it is told."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from models.strict_json import dump_json
from models.tables.job import Job, JobResult, JobStatus

#: A request that has crashed so many workers is not tried again.
POISON = "poison"

#: Codes of errors that are not the client's fault.
_OUR_FAULTS = frozenset(
    {"engine_error", "file_storage_unavailable", "internal_error", "out_of_memory", POISON}
)

#: What is said of jobs that ended without an answer and without an error of their own.
_ENDINGS = {
    JobStatus.CANCELLED: ("cancelled", "The job was cancelled."),
    JobStatus.EXPIRED: ("deadline_exceeded", "The deadline of the job passed before it was answered."),
}


@dataclass(frozen=True, slots=True)
class JobError:
    """A stable code, a sentence for people, and the field that is wrong if one is."""

    code: str
    message: str
    param: str | None = None

    @classmethod
    def of(cls, job: Job, result: JobResult | None) -> JobError | None:
        """Return why a job has no answer; None where it has one, or may still get one."""
        if result is not None and result.error is not None:
            return cls(**json.loads(result.error))
        ending = _ENDINGS.get(JobStatus(job.status))
        return None if ending is None else cls(*ending)

    @property
    def is_ours(self) -> bool:
        """Whether the request was fine, and Headrace failed it."""
        return self.code in _OUR_FAULTS

    def text(self) -> str:
        """Return the error as it is stored."""
        return dump_json(asdict(self))
