"""From errors to answers in OpenAI's shape: `{"error": {"message", "type", "param", "code"}}`.

Errors that only HTTP knows, beside the tree of `models/errors.py`:

    RequestError
    ├── UnsupportedMediaType    unsupported_media_type
    ├── ModelNotFound           model_not_found
    └── RangeNotSatisfiable     range_not_satisfiable
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

import structlog
from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from api.replies import ErrorBody, ErrorReply, FaultBody, reply
from models.errors import (
    BatchAlreadyFinished,
    BatchNotFound,
    BatchNotRetryable,
    BodyTooLarge,
    FileInUse,
    FileNotFound,
    HeadraceError,
    IdempotencyMismatch,
    InvalidApiKey,
    InvalidRequest,
    JobAlreadyFinished,
    JobAlreadyRetried,
    JobNotFound,
    JobNotRetryable,
    LengthRequired,
    RequestError,
    ServiceUnavailable,
    UploadNotFound,
    UploadNotPending,
)

_log = structlog.get_logger()

#: When a client may try again while the database is away.
_RETRY_AFTER = "2"


class UnsupportedMediaType(RequestError):
    """The body must be JSON without compression: `Content-Type: application/json`."""

    code = "unsupported_media_type"


class ModelNotFound(RequestError):
    """No model of this name is served here."""

    code = "model_not_found"


class RangeNotSatisfiable(RequestError):
    """No byte of the file is in the range that was asked for."""

    code = "range_not_satisfiable"

    def __init__(self, num_bytes: int) -> None:
        super().__init__()
        self.num_bytes = num_bytes


#: The first class that an error is an instance of decides.
_STATUSES: Mapping[type[HeadraceError], HTTPStatus] = {
    InvalidApiKey: HTTPStatus.UNAUTHORIZED,
    JobNotFound: HTTPStatus.NOT_FOUND,
    BatchNotFound: HTTPStatus.NOT_FOUND,
    ModelNotFound: HTTPStatus.NOT_FOUND,
    FileNotFound: HTTPStatus.NOT_FOUND,
    UploadNotFound: HTTPStatus.NOT_FOUND,
    FileInUse: HTTPStatus.CONFLICT,
    UploadNotPending: HTTPStatus.CONFLICT,
    RangeNotSatisfiable: HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
    JobAlreadyFinished: HTTPStatus.CONFLICT,
    JobNotRetryable: HTTPStatus.CONFLICT,
    JobAlreadyRetried: HTTPStatus.CONFLICT,
    BatchAlreadyFinished: HTTPStatus.CONFLICT,
    BatchNotRetryable: HTTPStatus.CONFLICT,
    LengthRequired: HTTPStatus.LENGTH_REQUIRED,
    BodyTooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    UnsupportedMediaType: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    IdempotencyMismatch: HTTPStatus.UNPROCESSABLE_ENTITY,
    RequestError: HTTPStatus.BAD_REQUEST,
    ServiceUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
}

#: Most faults of a request that are told; the message says how many there are.
_MAX_DETAILS = 1000

_HEADERS: Mapping[HTTPStatus, Mapping[str, str]] = {
    HTTPStatus.UNAUTHORIZED: {"WWW-Authenticate": 'Bearer realm="headrace"'},
    # The openai SDK repeats a 409 unless it is told that this one is for good.
    HTTPStatus.CONFLICT: {"x-should-retry": "false"},
    HTTPStatus.SERVICE_UNAVAILABLE: {"Retry-After": _RETRY_AFTER},
}


def install_error_handlers(app: Flask) -> None:
    """Let every error of this app answer in OpenAI's shape."""
    app.register_error_handler(HeadraceError, _answer_ours)
    app.register_error_handler(HTTPException, _answer_http)
    app.register_error_handler(Exception, _answer_unexpected)


def _answer_ours(error: HeadraceError) -> Response:
    status = next((status for kind, status in _STATUSES.items() if isinstance(error, kind)), None)
    if status is None:
        return _answer_unexpected(error)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        _log.error("request_failed", code=error.code, error=error.message)
    details = None
    param = error.param if isinstance(error, RequestError) else None
    if isinstance(error, InvalidRequest):
        # A body may be wrong in a hundred thousand places.
        details = [
            FaultBody(code=f.code, message=f.message, param=f.param, line=f.line)
            for f in error.faults[:_MAX_DETAILS]
        ]
    # What a database or Redis says of itself is for the log.
    message = type(error)().message if isinstance(error, ServiceUnavailable) else error.message
    answer = _answer(status, error.code, message, param=param, details=details)
    if isinstance(error, RangeNotSatisfiable):
        answer.headers["Content-Range"] = f"bytes */{error.num_bytes}"
    return answer


def _answer_http(error: HTTPException) -> Response:
    status = HTTPStatus(error.code or HTTPStatus.INTERNAL_SERVER_ERROR)
    message = error.description or status.phrase
    if status in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED):
        message = f"There is no {request.method} {request.path} here; /openapi.json lists all routes."
    answer = _answer(status, status.phrase.lower().replace(" ", "_"), message)
    if isinstance(error, MethodNotAllowed) and error.valid_methods:
        answer.headers["Allow"] = ", ".join(sorted(error.valid_methods))
    return answer


def _answer_unexpected(error: Exception) -> Response:
    _log.error("unexpected_error", exc_info=error)
    message = "Something went wrong in the server; its log has more under this answer's x-request-id."
    return _answer(HTTPStatus.INTERNAL_SERVER_ERROR, "internal_error", message)


def _answer(
    status: HTTPStatus,
    code: str,
    message: str,
    *,
    param: str | None = None,
    details: list[FaultBody] | None = None,
) -> Response:
    body = ErrorBody(message=message, type=_type(status), param=param, code=code)
    return reply(ErrorReply(error=body, details=details), status=status, headers=_HEADERS.get(status))


def _type(status: HTTPStatus) -> str:
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return "server_error"
    return "authentication_error" if status == HTTPStatus.UNAUTHORIZED else "invalid_request_error"
