"""What an output file, or an error file, says of a line."""

from __future__ import annotations

from typing import Any

import pytest

from models.batch_record import batch_record
from models.batch_store import BatchLine
from models.tables.job import Job, JobResult, JobStatus


def line(status: JobStatus, *, body: str | None = None, error: str | None = None) -> BatchLine:
    job = Job(id="job_0a", line=6, custom_id="mine", status=status)
    has_result = body is not None or error is not None
    return BatchLine(job, JobResult(job_id="job_0a", body=body, error=error) if has_result else None)


def refused(status_code: int, kind: str, code: str, message: str, param: str | None) -> dict[str, Any]:
    error = {"message": message, "type": kind, "param": param, "code": code}
    return {"status_code": status_code, "request_id": "job_0a", "body": {"error": error}}


def test_an_answer_is_as_the_api_would_have_given_it() -> None:
    record = batch_record(line(JobStatus.SUCCEEDED, body='{"choices":[{"text":"é"}]}'))

    assert record == {
        "id": "batch_req_0a",
        "custom_id": "mine",
        "line": 7,
        "response": {"status_code": 200, "request_id": "job_0a", "body": {"choices": [{"text": "é"}]}},
        "error": None,
    }


@pytest.mark.parametrize(
    ("code", "status_code", "kind"),
    [("invalid_value", 400, "invalid_request_error"), ("engine_error", 500, "server_error")],
)
def test_a_failure_is_as_http_would_have_told_it(code: str, status_code: int, kind: str) -> None:
    found = line(JobStatus.FAILED, error=f'{{"code":"{code}","message":"No.","param":"top_p"}}')

    record = batch_record(found)

    assert record["response"] == refused(status_code, kind, code, "No.", "top_p")
    assert record["error"] is None


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (
            JobStatus.EXPIRED,
            "batch_expired",
            "This request could not be executed before the completion window expired.",
        ),
        (JobStatus.CANCELLED, "batch_cancelled", "This request was cancelled before it was answered."),
    ],
)
@pytest.mark.parametrize("body", [None, '{"choices":[{"text":"half an"}]}'])
def test_what_was_not_tried_to_its_end_has_no_response(
    status: JobStatus, code: str, message: str, body: str | None
) -> None:
    record = batch_record(line(status, body=body))

    assert record["response"] is None
    assert record["error"] == {"code": code, "message": message}


@pytest.mark.parametrize("status", [JobStatus.SUCCEEDED, JobStatus.FAILED])
def test_a_line_whose_result_was_lost_says_so(status: JobStatus) -> None:
    record = batch_record(line(status))

    error = record["error"] or record["response"]["body"]["error"]
    assert (error["code"], error["message"]) == ("internal_error", f"The job is {status} without a result.")
