"""Request bodies, read whole or refused."""

from __future__ import annotations

from typing import Any

from flask import request

from api.errors import UnsupportedMediaType
from models.errors import BodyTooLarge, Fault, InvalidRequest, LengthRequired
from models.strict_json import parse_json

MAX_IDEMPOTENCY_KEY_CHARACTERS = 255


def read_object(*, max_bytes: int) -> dict[str, Any]:
    """Read the body as one JSON object.

    Raises LengthRequired, BodyTooLarge, UnsupportedMediaType, and InvalidRequest for what is not JSON.
    """
    require_plain_body()
    if request.mimetype != "application/json":
        raise UnsupportedMediaType
    # A chunked body over a limit is cut off silently by the framework, so its length must be declared.
    if request.content_length is None or "Transfer-Encoding" in request.headers:
        raise LengthRequired
    if request.content_length > max_bytes:
        raise BodyTooLarge(f"The body has {request.content_length} bytes; at most {max_bytes} are allowed.")
    value = parse_json(request.get_data(cache=False))
    if not isinstance(value, dict):
        raise InvalidRequest([Fault("invalid_type", "The body must be a JSON object.")])
    return value


def require_plain_body() -> None:
    """Raise UnsupportedMediaType for a compressed body."""
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding.lower() != "identity":
        raise UnsupportedMediaType(f"Content-Encoding {encoding!r} is not supported; send the body as it is.")


def read_optional_object(*, max_bytes: int) -> dict[str, Any]:
    """Read the body as one JSON object, which is empty where there is no body."""
    if request.content_length in (None, 0) and "Transfer-Encoding" not in request.headers:
        return {}
    return read_object(max_bytes=max_bytes)


def is_repeated() -> bool:
    """Whether the client says that it has sent this request before, as the openai SDK does by itself."""
    tries = request.headers.get("x-stainless-retry-count", "0")
    return tries.isascii() and tries.isdigit() and tries.strip("0") != ""


def read_idempotency_key() -> str | None:
    """Return the Idempotency-Key, if one was given. Raises InvalidRequest for an unusable one."""
    key = request.headers.get("Idempotency-Key")
    if key is None or (key.isprintable() and 1 <= len(key) <= MAX_IDEMPOTENCY_KEY_CHARACTERS):
        return key
    message = f"Idempotency-Key must have 1 to {MAX_IDEMPOTENCY_KEY_CHARACTERS} printable characters."
    raise InvalidRequest([Fault("invalid_value", message, "Idempotency-Key")])
