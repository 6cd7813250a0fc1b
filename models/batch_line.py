"""The lines of an OpenAI batch file: one request each, or what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from models.errors import Fault, InvalidRequest
from models.request import ENDPOINTS, estimate_cost
from models.settings import Settings
from models.strict_json import parse_json
from models.tables.job import Lane
from models.validation import JobDraft, read_body

_FIELDS = frozenset({"custom_id", "method", "url", "body"})
_MAX_CUSTOM_ID_CHARACTERS = 512
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that holds no valid request. `line` counts from 0, as in a batch's jobs."""

    line: int
    custom_id: str | None
    faults: tuple[Fault, ...]


def read_batch_lines(path: Path, settings: Settings) -> Iterator[JobDraft | BadLine]:
    """Read a batch file, in its order, as bulk jobs; a line that is wrong is given as a BadLine.

    An empty line is a bad line. Of lines with the same `custom_id` the first counts. Only one line is in
    memory at a time, and none longer than `max_body_bytes`.
    """
    seen: set[str] = set()
    with path.open("rb") as file:
        for line, raw in enumerate(_raw_lines(file, settings.max_body_bytes)):
            value: Any = None
            try:
                value = _parse(raw, settings.max_body_bytes)
                yield _draft(value, line, seen, settings)
            except InvalidRequest as error:
                yield BadLine(line, _custom_id(value), error.faults)


def _raw_lines(file: BinaryIO, max_bytes: int) -> Iterator[bytes]:
    """Yield lines without their ends; one that is too long is cut just above the limit."""
    first = True
    while raw := file.readline(max_bytes + 2):
        rest = raw
        while not rest.endswith(b"\n") and (rest := file.readline(max_bytes)):
            pass
        yield (raw.removeprefix(_BYTE_ORDER_MARK) if first else raw).rstrip(b"\r\n")
        first = False


def _parse(raw: bytes, max_bytes: int) -> dict[str, Any]:
    if len(raw) > max_bytes:
        raise _invalid("request_too_large", f"The line is longer than {max_bytes} bytes.")
    if not raw.strip():
        raise _invalid("invalid_json", "The line is empty.")
    value = parse_json(raw)
    if not isinstance(value, dict):
        raise _invalid("invalid_type", "A line must be a JSON object.")
    return value


def _draft(value: dict[str, Any], line: int, seen: set[str], settings: Settings) -> JobDraft:
    faults = [*_envelope_faults(value), *_custom_id_faults(value, seen)]
    custom_id = _custom_id(value)
    if custom_id is not None:
        seen.add(custom_id)
    endpoint, content = value.get("url"), value.get("body")
    body = None
    if isinstance(content, dict) and isinstance(endpoint, str) and endpoint in ENDPOINTS:
        try:
            body = read_body(endpoint, content, settings)
        except InvalidRequest as error:
            faults += error.faults
    if faults or body is None:
        raise InvalidRequest(faults)
    return JobDraft(
        endpoint=str(endpoint),
        model=body.model,
        body=value["body"],
        cost_tokens=estimate_cost(body, default_max_tokens=settings.default_max_tokens),
        seed=body.seed,
        lane=Lane.BULK,
        custom_id=custom_id,
        line=line,
    )


def _envelope_faults(value: dict[str, Any]) -> Iterator[Fault]:
    for name in sorted(value.keys() - _FIELDS):
        yield Fault("unsupported_parameter", f"{name} is not supported here.", name)
    for name in sorted(_FIELDS - value.keys()):
        yield Fault("missing_required_parameter", f"{name} is required.", name)
    if "method" in value and value["method"] != "POST":
        yield Fault("invalid_value", "method must be POST.", "method")
    if "url" in value and (not isinstance(value["url"], str) or value["url"] not in ENDPOINTS):
        known = ", ".join(ENDPOINTS)
        yield Fault("unknown_endpoint", f"Unknown url {value['url']!r}; known: {known}.", "url")
    if "body" in value and not isinstance(value["body"], dict):
        yield Fault("invalid_type", "body must be a JSON object.", "body")


def _custom_id_faults(value: dict[str, Any], seen: set[str]) -> Iterator[Fault]:
    if "custom_id" not in value:
        return
    custom_id = value["custom_id"]
    if not isinstance(custom_id, str) or not 0 < len(custom_id) <= _MAX_CUSTOM_ID_CHARACTERS:
        message = f"custom_id must be a string of 1 to {_MAX_CUSTOM_ID_CHARACTERS} characters."
        yield Fault("invalid_value", message, "custom_id")
    elif custom_id in seen:
        yield Fault(
            "duplicate_custom_id", f"custom_id {custom_id!r} is used by an earlier line.", "custom_id"
        )


def _custom_id(value: Any) -> str | None:
    found = value.get("custom_id") if isinstance(value, dict) else None
    return found if isinstance(found, str) and len(found) <= _MAX_CUSTOM_ID_CHARACTERS else None


def _invalid(code: str, message: str) -> InvalidRequest:
    return InvalidRequest([Fault(code, message)])
