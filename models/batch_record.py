"""The records of answers: one JSON object for each line of an input, in OpenAI's shape."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from models.batch_store import BatchLine
from models.job_error import JobError
from models.tables.job import JobStatus

#: What the error file of a batch says of lines that were not tried to their end; the first is OpenAI's.
_BATCH_ENDINGS: Mapping[str, JobError] = {
    JobStatus.EXPIRED: JobError(
        "batch_expired", "This request could not be executed before the completion window expired."
    ),
    JobStatus.CANCELLED: JobError("batch_cancelled", "This request was cancelled before it was answered."),
}


def batch_record(found: BatchLine) -> dict[str, Any]:
    """Return the record of a batch's line, as it stands in the output file or the error file."""
    return answer_record(found, _BATCH_ENDINGS)


def answer_record(found: BatchLine, endings: Mapping[str, JobError] | None = None) -> dict[str, Any]:
    """Return the record of a line whose job has ended; `endings` say it in other words for some statuses."""
    job, result = found.job, found.result
    if job.status == JobStatus.SUCCEEDED and result is not None and result.body is not None:
        return _record(found, response=_response(200, job.id, json.loads(result.body)))
    error = (endings or {}).get(job.status) or JobError.of(job, result)
    error = error or JobError("internal_error", f"The job is {job.status} without a result.")
    if job.status == JobStatus.FAILED:
        return _record(found, response=refusal(job.id, error))
    return _record(found, error={"code": error.code, "message": error.message})


def refusal(request_id: str, error: JobError) -> dict[str, Any]:
    """Return the response of a request that was refused, or failed, as HTTP would have told it."""
    status_code, kind = (500, "server_error") if error.is_ours else (400, "invalid_request_error")
    body = {"message": error.message, "type": kind, "param": error.param, "code": error.code}
    return _response(status_code, request_id, {"error": body})


def _record(
    found: BatchLine, *, response: dict[str, Any] | None = None, error: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "id": "batch_req_" + found.job.id.removeprefix("job_"),
        "custom_id": found.job.custom_id,
        "line": (found.job.line or 0) + 1,
        "response": response,
        "error": error,
    }


def _response(status_code: int, request_id: str, body: dict[str, Any]) -> dict[str, Any]:
    return {"status_code": status_code, "request_id": request_id, "body": body}
