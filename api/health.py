"""Whether the server lives, whether it can serve, and which version it is. No key is asked for."""

from __future__ import annotations

from collections import Counter
from http import HTTPStatus
from typing import Literal

from flask import Blueprint, Response, current_app, jsonify

from api.openapi import build_document, operation
from api.replies import Reply, reply
from api.services import Services, services
from models.errors import DatabaseUnavailable, QueueUnavailable, StartupError
from models.migrate import require_migrated
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
    redis: Literal["ok", "unavailable"]
    workers: int
    workers_by_model: dict[str, int]
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
    found = _look(services())
    unavailable = found.status == "unavailable"
    return reply(found, status=HTTPStatus.SERVICE_UNAVAILABLE if unavailable else HTTPStatus.OK)


@blueprint.get("/openapi.json")
@operation("Describe this API.", needs_key=False)
def openapi() -> Response:
    return jsonify(build_document(current_app, version=headrace_version()))


def _look(house: Services) -> Readiness:
    redis, reasons = _look_at_redis(house)
    try:
        require_migrated(house.database)
        workers = Counter(worker.model for worker in house.fleet.alive())
    except DatabaseUnavailable:
        reasons.append("the database does not answer")
        return _unavailable(database="unavailable", migrations="unknown", redis=redis, reasons=reasons)
    except StartupError as error:
        reasons.append(error.message)
        return _unavailable(database="ok", migrations="missing", redis=redis, reasons=reasons)
    by_model = {name: workers[name] for name in house.settings.allowed_models}
    reasons += [f"no worker of {name} is alive" for name, number in by_model.items() if number == 0]
    return Readiness(
        status="degraded" if reasons else "ok",
        database="ok",
        migrations="ok",
        redis=redis,
        workers=sum(by_model.values()),
        workers_by_model=by_model,
        reasons=reasons,
    )


def _look_at_redis(house: Services) -> tuple[Literal["ok", "unavailable"], list[str]]:
    try:
        house.queue.ping()
    except QueueUnavailable:
        return "unavailable", ["Redis does not answer"]
    return "ok", []


def _unavailable(
    *,
    database: Literal["ok", "unavailable"],
    migrations: Literal["unknown", "missing"],
    redis: Literal["ok", "unavailable"],
    reasons: list[str],
) -> Readiness:
    return Readiness(
        status="unavailable",
        database=database,
        migrations=migrations,
        redis=redis,
        workers=0,
        workers_by_model={},
        reasons=reasons,
    )
