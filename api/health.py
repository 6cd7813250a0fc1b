"""Whether the server lives, whether it can serve, and which version it is. No key is asked for."""

from __future__ import annotations

from http import HTTPStatus
from typing import Literal

from flask import Blueprint, Response, current_app, jsonify
from pydantic import Field

from api.openapi import build_document, operation
from api.replies import Reply, reply
from api.services import services
from api.survey import Survey, survey
from models.redis_health import RedisHealth
from models.version import headrace_version

blueprint = Blueprint("health", __name__)


class Alive(Reply):
    """The process lives."""

    status: Literal["ok"] = "ok"


class Version(Reply):
    """The version of Headrace that answers."""

    version: str


class Readiness(Reply):
    """Which parts are there. `degraded` still accepts jobs, which then wait."""

    status: Literal["ok", "degraded", "unavailable"]
    database: Literal["ok", "unavailable"]
    migrations: Literal["ok", "unknown", "missing"]
    redis: Literal["ok", "degraded", "unavailable"] = Field(
        description="`degraded`: takes no writes, or may evict what waits."
    )
    workers: int
    workers_by_model: dict[str, int]
    stuck: list[str] = Field(
        description="Models whose jobs wait while none is taken and nothing is computed."
    )
    reasons: list[str]


@blueprint.get("/healthz")
@operation("Say that the process lives.", replies=(Alive,), needs_key=False)
def healthz() -> Response:
    return reply(Alive())


@blueprint.get("/version")
@operation("Say the version.", replies=(Version,), needs_key=False)
def version() -> Response:
    return reply(Version(version=headrace_version()))


@blueprint.get("/readyz")
@operation("Say which parts are there.", replies=(Readiness,), errors=(503,), needs_key=False)
def readyz() -> Response:
    found = survey(services())
    status = HTTPStatus.OK if found.can_accept else HTTPStatus.SERVICE_UNAVAILABLE
    return reply(_readiness(found), status=status)


@blueprint.get("/openapi.json")
@operation("Describe this API.", needs_key=False)
def openapi() -> Response:
    return jsonify(build_document(current_app, version=headrace_version()))


def _readiness(found: Survey) -> Readiness:
    by_model = {pulse.model: pulse.num_workers for pulse in found.pulses}
    return Readiness(
        status=_status(found),
        database=found.database,
        migrations=found.migrations,
        redis=_redis(found.redis),
        workers=sum(by_model.values()),
        workers_by_model=by_model,
        stuck=found.stuck,
        reasons=list(found.reasons),
    )


def _status(found: Survey) -> Literal["ok", "degraded", "unavailable"]:
    if not found.can_accept:
        return "unavailable"
    return "degraded" if found.reasons else "ok"


def _redis(health: RedisHealth) -> Literal["ok", "degraded", "unavailable"]:
    if not health.answers:
        return "unavailable"
    return "degraded" if health.faults else "ok"
