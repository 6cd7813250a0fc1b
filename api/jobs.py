"""`/v1/jobs`: hand in, look up, wait for, list, cancel, retry."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import structlog
from flask import Blueprint, Response

from api.auth import project_id, require_key
from api.batch_replies import BatchReply
from api.batch_view import view_batch
from api.body import read_idempotency_key, read_object
from api.job_view import view_job
from api.openapi import operation
from api.query import JobListQuery, Query, WaitQuery, preferred_wait_seconds, read_query
from api.replies import JobPage, JobReply, reply
from api.services import services
from models.accept import Submission
from models.job_store import JobFilter, JobRecord
from models.retry import retry_job
from models.signals import Signal
from models.tables.job import FINAL_STATUSES, JobStatus
from models.validation import JobSubmission, ListSubmission, read_list_submission, read_submission

_log = structlog.get_logger()

blueprint = Blueprint("jobs", __name__, url_prefix="/v1/jobs")
blueprint.before_request(require_key)


@blueprint.post("")
@operation(
    "Hand in one job, or a list of jobs as a batch.",
    body=(JobSubmission, ListSubmission),
    replies=(JobReply, BatchReply),
    status=HTTPStatus.ACCEPTED,
    headers={"Idempotency-Key": "With the same key and the same body nothing new is made."},
    errors=(400, 411, 413, 415, 422),
)
def create() -> Response:
    read_query(Query)
    house = services()
    value = read_object(max_bytes=house.settings.max_body_bytes)
    submission = _read_submission(value)
    accepted_id = house.acceptance.accept(submission)
    if submission.as_batch:
        _log.info("batch_accepted", batch_id=accepted_id, num_jobs=len(submission.drafts))
        batch = view_batch(house.batches.find(submission.project_id, accepted_id))
        return _accepted(batch, f"/v1/batches/{accepted_id}")
    _log.info("job_accepted", job_id=accepted_id)
    job = _describe(house.jobs.find(submission.project_id, accepted_id))
    return _accepted(job, f"/v1/jobs/{accepted_id}")


@blueprint.get("/<job_id>")
@operation(
    "Look up a job, and wait for it if asked to.",
    query=WaitQuery,
    replies=(JobReply,),
    headers={"Prefer": "`wait=25` waits as the query parameter does."},
    errors=(400, 404),
)
def get(job_id: str) -> Response:
    house = services()
    asked_seconds = read_query(WaitQuery).wait
    preferred_seconds = preferred_wait_seconds()
    wanted_seconds = asked_seconds if asked_seconds is not None else preferred_seconds or 0.0
    seconds = min(wanted_seconds, house.settings.max_poll_seconds)
    project = project_id()
    house.waiter.wait(job_id, seconds=seconds, is_finished=lambda: house.jobs.is_finished(project, job_id))
    answer = reply(_describe(house.jobs.find(project, job_id)))
    if preferred_seconds is not None and asked_seconds is None:
        answer.headers["Preference-Applied"] = f"wait={seconds:g}"
    return answer


@blueprint.get("")
@operation("List jobs, newest first.", query=JobListQuery, replies=(JobPage,), errors=(400, 404))
def index() -> Response:
    query = read_query(JobListQuery)
    chosen = JobFilter(status=query.status, batch_id=query.batch_id, model=query.model, error_code=query.code)
    records, has_more = services().jobs.page(project_id(), chosen, after=query.after, limit=query.limit)
    data = [view_job(record) for record in records]
    return reply(
        JobPage(
            data=data,
            first_id=data[0].id if data else None,
            last_id=data[-1].id if data else None,
            has_more=has_more,
        )
    )


@blueprint.post("/<job_id>/cancel")
@operation("Cancel a job at once.", replies=(JobReply,), errors=(400, 404, 409))
def cancel(job_id: str) -> Response:
    read_query(Query)
    house = services()
    before = house.jobs.cancel(project_id(), job_id)
    if before == JobStatus.RUNNING:
        house.hint(Signal.CANCEL, [job_id])
    if before not in FINAL_STATUSES:
        _log.info("job_cancelled", job_id=job_id, was=before)
    house.hint(Signal.DONE, [job_id])
    return reply(_describe(house.jobs.find(project_id(), job_id)))


@blueprint.post("/<job_id>/retry")
@operation(
    "Queue the request of a job that failed, expired or was cancelled once more, as a new job.",
    replies=(JobReply,),
    status=HTTPStatus.ACCEPTED,
    errors=(400, 404, 409),
)
def retry(job_id: str) -> Response:
    read_query(Query)
    house = services()
    new_id = retry_job(house.database, project_id(), job_id)
    _log.info("job_retried", job_id=job_id, new_job_id=new_id)
    return _accepted(_describe(house.jobs.find(project_id(), new_id)), f"/v1/jobs/{new_id}")


def _read_submission(value: dict[str, Any]) -> Submission:
    settings = services().settings
    key = read_idempotency_key()
    if "requests" not in value:
        return Submission(project_id(), [read_submission(value, settings)], False, idempotency_key=key)
    drafts, metadata = read_list_submission(value, settings)
    return Submission(project_id(), drafts, True, metadata=metadata, idempotency_key=key)


def _describe(record: JobRecord) -> JobReply:
    if record.job.status != JobStatus.QUEUED:
        return view_job(record)
    house = services()
    speed = house.fleet.tokens_per_second(record.job.model)
    return view_job(record, place=house.jobs.place(record.job), tokens_per_second=speed)


def _accepted(body: JobReply | BatchReply, location: str) -> Response:
    return reply(body, status=HTTPStatus.ACCEPTED, headers={"Location": location, "Retry-After": "1"})
