"""Every answer carries an `x-request-id`, and so does every line that is logged on the way to it."""

from __future__ import annotations

import re

import structlog
from flask import Flask, Response, g, request

from models.ids import new_id

HEADER = "x-request-id"

_SANE = re.compile(r"[A-Za-z0-9._:-]{1,128}")


def install_request_ids(app: Flask) -> None:
    """Give every request of this app an id: the client's own if it is a plain word, else a new one."""
    app.before_request(_begin)
    app.after_request(_name)


def _begin() -> None:
    given = request.headers.get(HEADER, "")
    g.request_id = given if _SANE.fullmatch(given) else new_id("req")
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(request_id=g.request_id)


def _name(response: Response) -> Response:
    response.headers[HEADER] = g.request_id
    return response
