"""`/v1/batches`: batches of files, and the results of any batch in the order of its requests."""

from __future__ import annotations

from collections.abc import Callable

import structlog
from flask import Blueprint, Response, request

from api.auth import project_id, require_key
from api.batch_replies import BatchPage, BatchReply, ResultPage
from api.batch_view import view_batch, view_batches, view_results
from api.body import is_repeated, read_idempotency_key, read_object, read_optional_object
from api.openapi import operation
from api.query import BatchListQuery, Query, ResultListQuery, read_query
from api.replies import reply
from api.services import services
from models.batch_change import cancel_batch, pause_batch, resume_batch, update_batch
from models.batch_order import BatchOrder, BatchRetry, BatchUpdate, read_order, read_retry, read_update
from models.batch_outlook import BatchOutlook, look_ahead
from models.batch_retry import retry_batch
from models.batch_store import LineFilter
from models.database import Database
from models.tables.batch_job import OPEN_STATUSES, BatchJob
from models.tables.job import JobStatus, Lane

_log = structlog.get_logger()

#: Of a page of results: every line up to this one has ended. Absent where not even the first has.
COMPLETE_THROUGH = "x-complete-through"

blueprint = Blueprint("batches", __name__, url_prefix="/v1/batches")
blueprint.before_request(require_key)


@blueprint.post("")
@operation(
    "Make a batch of a file that was uploaded. It is read, and checked as a whole, before anything runs.",
    body=(BatchOrder,),
    replies=(BatchReply,),
    headers={"Idempotency-Key": "With the same key and the same body nothing new is made."},
    errors=(400, 404, 411, 413, 415, 422),
)
def create() -> Response:
    read_query(Query)
    house = services()
    order = read_order(read_object(max_bytes=house.settings.max_body_bytes))
    batch_id = house.batch_acceptance.accept(
        project_id(), order, key=read_idempotency_key(), is_repeated=is_repeated()
    )
    _log.info("batch_accepted", batch_id=batch_id, file_id=order.input_file_id)
    return _describe(batch_id)


@blueprint.get("")
@operation("List batches, newest first.", query=BatchListQuery, replies=(BatchPage,), errors=(400, 404))
def index() -> Response:
    query = read_query(BatchListQuery)
    batches, has_more = services().batches.page(project_id(), after=query.after, limit=query.limit)
    return reply(view_batches(batches, has_more=has_more))


@blueprint.get("/<batch_id>")
@operation("Look up a batch.", replies=(BatchReply,), errors=(400, 404))
def get(batch_id: str) -> Response:
    read_query(Query)
    return _describe(batch_id)


@blueprint.post("/<batch_id>")
@operation(
    "Change the lane or the deadline of a batch that is not over.",
    body=(BatchUpdate,),
    replies=(BatchReply,),
    errors=(400, 404, 409, 411, 413, 415),
)
def update(batch_id: str) -> Response:
    read_query(Query)
    house = services()
    wanted = read_update(read_object(max_bytes=house.settings.max_body_bytes))
    batch = house.batches.find(project_id(), batch_id)
    update_batch(
        house.database,
        project_id(),
        batch_id,
        lane=Lane(wanted.lane) if wanted.lane is not None else None,
        expires_at=wanted.expires_at(created_at=batch.created_at, at=house.batches.time()),
        completion_window=wanted.completion_window,
    )
    _log.info("batch_updated", batch_id=batch_id, lane=wanted.lane)
    return _describe(batch_id)


@blueprint.post("/<batch_id>/cancel")
@operation(
    "Cancel what of a batch has not ended; what has ended is kept, and its files are written.",
    replies=(BatchReply,),
    errors=(400, 404, 409),
)
def cancel(batch_id: str) -> Response:
    return _change(batch_id, cancel_batch, "batch_cancelling")


@blueprint.post("/<batch_id>/pause")
@operation("Hold what waits; what runs goes on to its end.", replies=(BatchReply,), errors=(400, 404, 409))
def pause(batch_id: str) -> Response:
    return _change(batch_id, pause_batch, "batch_paused")


@blueprint.post("/<batch_id>/resume")
@operation("Let a batch that is paused go on.", replies=(BatchReply,), errors=(400, 404, 409))
def resume(batch_id: str) -> Response:
    return _change(batch_id, resume_batch, "batch_resumed")


@blueprint.post("/<batch_id>/retry")
@operation(
    "Try the lines of a batch that is over once more that have no answer; new files are written.",
    body=(BatchRetry,),
    replies=(BatchReply,),
    errors=(400, 404, 409, 411, 413, 415),
)
def retry(batch_id: str) -> Response:
    read_query(Query)
    house = services()
    wanted = read_retry(read_optional_object(max_bytes=house.settings.max_body_bytes))
    retry_batch(
        house.database,
        project_id(),
        batch_id,
        statuses=None if wanted.statuses is None else [JobStatus(status) for status in wanted.statuses],
        completion_window=wanted.completion_window,
    )
    _log.info("batch_retried", batch_id=batch_id)
    return _describe(batch_id)


@blueprint.get("/<batch_id>/results")
@operation(
    "List the results of a batch in input order, whatever their status, while it runs too. The header"
    f" `{COMPLETE_THROUGH}` says up to which line all have ended; it is absent where the first has not.",
    query=ResultListQuery,
    replies=(ResultPage,),
    headers={"If-None-Match": "The ETag of an earlier answer: 304 without a body if it is the same."},
    errors=(400, 404),
)
def results(batch_id: str) -> Response:
    query = read_query(ResultListQuery)
    store, project = services().batches, project_id()
    # Looked up first: what has ended by then has ended in the page too.
    through = store.complete_through(project, batch_id)
    chosen = LineFilter(custom_id=query.custom_id, status=query.status)
    lines, has_more = store.lines(project, batch_id, chosen, after=query.after, limit=query.limit)
    headers = {} if through is None else {COMPLETE_THROUGH: str(through)}
    answer = reply(view_results(lines, has_more=has_more), headers=headers)
    answer.add_etag(weak=True)
    answer.make_conditional(request)
    return answer


def _change(batch_id: str, change: Callable[[Database, str, str], None], event: str) -> Response:
    read_query(Query)
    change(services().database, project_id(), batch_id)
    _log.info(event, batch_id=batch_id)
    return _describe(batch_id)


def _describe(batch_id: str) -> Response:
    batch = services().batches.find(project_id(), batch_id)
    return reply(view_batch(batch, _outlook(batch)))


def _outlook(batch: BatchJob) -> BatchOutlook:
    if batch.status not in OPEN_STATUSES:
        return BatchOutlook()
    house = services()
    first, at = house.batches.first_waiting(batch)
    # A list has a model for each of its requests.
    model = batch.model if batch.model is not None or first is None else first.model
    place = house.jobs.place(first) if first is not None else None
    return look_ahead(batch, at, house.fleet.speed(model), place)
