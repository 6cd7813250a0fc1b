"""`/v1/models`: what jobs may name, and whether a worker for it is alive."""

from __future__ import annotations

from flask import Blueprint, Response

from api.auth import require_key
from api.errors import ModelNotFound
from api.openapi import operation
from api.query import Query, read_query
from api.replies import ModelPage, ModelReply, reply
from api.services import services

blueprint = Blueprint("catalog", __name__, url_prefix="/v1/models")
blueprint.before_request(require_key)


@blueprint.get("")
@operation("List the models.", replies=(ModelPage,), errors=(400,))
def index() -> Response:
    read_query(Query)
    data = _models()
    return reply(ModelPage(data=data, first_id=data[0].id, last_id=data[-1].id))


@blueprint.get("/<path:model_id>")
@operation("Look up a model.", replies=(ModelReply,), errors=(400, 404))
def get(model_id: str) -> Response:
    read_query(Query)
    for model in _models():
        if model.id == model_id:
            return reply(model)
    raise ModelNotFound


def _models() -> list[ModelReply]:
    house = services()
    alive = {worker.model for worker in house.fleet.alive()}
    created = int(house.started_at.timestamp())
    return [
        ModelReply(id=name, created=created, alive=name in alive) for name in house.settings.allowed_models
    ]
