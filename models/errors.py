"""Every error that Headrace raises on purpose.

    HeadraceError
    ├── RequestError              the caller can mend it
    │   ├── InvalidRequest          invalid_request, or the code of its only fault
    │   ├── BodyTooLarge            request_too_large
    │   ├── LengthRequired          length_required
    │   ├── InvalidApiKey           invalid_api_key
    │   ├── JobNotFound             job_not_found
    │   ├── BatchNotFound           batch_not_found
    │   ├── FileNotFound            file_not_found
    │   │   └── InputFileNotFound     file_not_found
    │   ├── UploadNotFound          upload_not_found
    │   ├── FileInUse               file_in_use
    │   ├── UploadNotPending        upload_not_pending
    │   ├── JobAlreadyFinished      job_already_finished
    │   ├── JobNotRetryable         job_not_retryable
    │   ├── JobAlreadyRetried       job_already_retried
    │   ├── BatchAlreadyFinished    batch_already_finished
    │   ├── BatchNotRetryable       batch_not_retryable
    │   └── IdempotencyMismatch     idempotency_key_reused
    ├── ServiceUnavailable        try again later
    │   ├── DatabaseUnavailable     database_unavailable
    │   ├── QueueUnavailable        queue_unavailable
    │   └── FileStorageUnavailable  file_storage_unavailable
    └── StartupError              startup_failed: says what is wrong and how to mend it
        └── ForeignDatabase         foreign_database

The docstring of a class is its message unless it is given one.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass


class HeadraceError(Exception):
    """Something went wrong in Headrace."""

    code = "internal_error"

    def __init__(self, message: str | None = None) -> None:
        self.message = message or inspect.getdoc(type(self)) or self.code
        super().__init__(self.message)


class RequestError(HeadraceError):
    """The request cannot be served as it stands."""

    code = "invalid_request"
    #: The field of the request that is to blame, if it is one.
    param: str | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with a request: which field, and, in a list, the index of the request."""

    code: str
    message: str
    param: str | None = None
    line: int | None = None


class InvalidRequest(RequestError):
    """The request is not valid."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        first = self.faults[0]
        self.param = first.param
        self.code = first.code if len(self.faults) == 1 else "invalid_request"
        more = f" (and {len(self.faults) - 1} more)" if len(self.faults) > 1 else ""
        super().__init__(first.message + more)


class BodyTooLarge(RequestError):
    """The request body is over the limit."""

    code = "request_too_large"


class LengthRequired(RequestError):
    """The request needs a Content-Length header."""

    code = "length_required"


class InvalidApiKey(RequestError):
    """No valid API key was given: send it as `Authorization: Bearer <key>`."""

    code = "invalid_api_key"


class JobNotFound(RequestError):
    """No job of this project has this id."""

    code = "job_not_found"


class BatchNotFound(RequestError):
    """No batch of this project has this id."""

    code = "batch_not_found"


class FileNotFound(RequestError):
    """No file of this project has this id."""

    code = "file_not_found"


class InputFileNotFound(FileNotFound):
    """No file of this project has the id in input_file_id."""

    param = "input_file_id"


class UploadNotFound(RequestError):
    """No upload of this project has this id."""

    code = "upload_not_found"


class FileInUse(RequestError):
    """The file is being read by a batch."""

    code = "file_in_use"


class UploadNotPending(RequestError):
    """The upload is over: nothing can be added to it."""

    code = "upload_not_pending"


class JobAlreadyFinished(RequestError):
    """The job has already finished."""

    code = "job_already_finished"


class JobNotRetryable(RequestError):
    """The job cannot be retried."""

    code = "job_not_retryable"


class JobAlreadyRetried(RequestError):
    """The job was retried already."""

    code = "job_already_retried"


class BatchAlreadyFinished(RequestError):
    """The batch has already finished."""

    code = "batch_already_finished"


class BatchNotRetryable(RequestError):
    """No line of the batch can be retried."""

    code = "batch_not_retryable"


class IdempotencyMismatch(RequestError):
    """This Idempotency-Key was used before with another request."""

    code = "idempotency_key_reused"


class ServiceUnavailable(HeadraceError):
    """A part that Headrace needs does not answer; try again."""

    code = "service_unavailable"


class DatabaseUnavailable(ServiceUnavailable):
    """The database does not answer; try again."""

    code = "database_unavailable"


class QueueUnavailable(ServiceUnavailable):
    """Redis does not answer; try again."""

    code = "queue_unavailable"


class FileStorageUnavailable(ServiceUnavailable):
    """The store of files does not answer; try again."""

    code = "file_storage_unavailable"


class StartupError(HeadraceError):
    """Headrace cannot start."""

    code = "startup_failed"


class ForeignDatabase(StartupError):
    """The database holds tables that are not Headrace's; give an empty one."""

    code = "foreign_database"
