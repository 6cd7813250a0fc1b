"""`/v1/batches`: batches, and their results in the order of the requests."""

from __future__ import annotations

from flask import Blueprint, Response

from api.auth import project_id, require_key
from api.batch_view import view_batch, view_results
from api.openapi import operation
from api.query import Query, ResultListQuery, read_query
from api.replies import BatchReply, ResultPage, reply
from api.services import services

blueprint = Blueprint("batches", __name__, url_prefix="/v1/batches")
blueprint.before_request(require_key)


@blueprint.get("/<batch_id>")
@operation("Look up a batch.", replies=(BatchReply,), errors=(400, 404))
def get(batch_id: str) -> Response:
    read_query(Query)
    return reply(view_batch(services().batches.find(project_id(), batch_id)))


@blueprint.get("/<batch_id>/results")
@operation(
    "List the results of a batch in input order, whatever their status, while it runs too.",
    query=ResultListQuery,
    replies=(ResultPage,),
    errors=(400, 404),
)
def results(batch_id: str) -> Response:
    query = read_query(ResultListQuery)
    lines, has_more = services().batches.lines(project_id(), batch_id, after=query.after, limit=query.limit)
    return reply(view_results(lines, has_more=has_more))
