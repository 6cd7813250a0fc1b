"""What `submit` hands in, put together from flags or from JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import typer

from models.errors import InvalidRequest
from models.strict_json import parse_json


@dataclass(frozen=True, slots=True)
class BodyFlags:
    """The request body as flags give it; None where a flag was absent."""

    prompt: str | None = None
    system: str | None = None
    messages: Sequence[str] = ()
    model: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None


@dataclass(frozen=True, slots=True)
class EnvelopeFlags:
    """What is said of the job beside its body; None where a flag was absent."""

    endpoint: str | None = None
    lane: str | None = None
    deadline: str | None = None
    metadata: Mapping[str, str] | None = None


def build_submission(text: bytes | None, body: BodyFlags, envelope: EnvelopeFlags) -> dict[str, Any]:
    """Put together what `POST /v1/jobs` takes.

    `text` is a request body in OpenAI's shape, or a whole submission (an object with `body` or `requests`);
    flags are laid over it. Without it the body is made from the prompt or the messages. Raises BadParameter.
    """
    if text is None:
        submission: dict[str, Any] = {"body": _body(body)}
    else:
        if body.prompt is not None or body.messages or body.system is not None:
            raise typer.BadParameter("give either a file or a prompt or messages, not two of them")
        value = _parse(text)
        submission = value if "body" in value or "requests" in value else {"body": value}
    if "requests" in submission and (_settings(body) or _given(envelope)):
        raise typer.BadParameter("a list of requests says everything itself; leave the other flags out")
    if isinstance(submission.get("body"), dict):
        submission["body"] |= _settings(body)
    return submission | _given(envelope)


def read_metadata(pairs: Sequence[str]) -> dict[str, str] | None:
    """Read `key=value` pairs. Raises BadParameter."""
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise typer.BadParameter(f"--metadata takes key=value, not {pair!r}")
        found[key] = value
    return found or None


def read_moment(text: str | None, *, flag: str) -> float | str | None:
    """Read a number of seconds from now; what is none is a time, which the API reads. Raises BadParameter."""
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        return text
    if not math.isfinite(seconds):
        raise typer.BadParameter(f"{flag} takes a time or a number of seconds, not {text}")
    return seconds


def _body(body: BodyFlags) -> dict[str, Any]:
    if (body.prompt is None) == (not body.messages):
        raise typer.BadParameter("give one of --prompt, --message, --file or - for JSON on stdin")
    if body.prompt is not None:
        if body.system is not None:
            raise typer.BadParameter("--system goes with --message; a prompt has no roles")
        return {"prompt": body.prompt}
    system = [{"role": "system", "content": body.system}] if body.system is not None else []
    return {"messages": [*system, *({"role": "user", "content": text} for text in body.messages)]}


def _settings(body: BodyFlags) -> dict[str, Any]:
    if body.temperature is not None and not math.isfinite(body.temperature):
        raise typer.BadParameter(f"--temperature takes a number, not {body.temperature}")
    named = {"model": body.model, "max_tokens": body.max_tokens, "temperature": body.temperature}
    return {name: value for name, value in named.items() if value is not None}


def _given(envelope: EnvelopeFlags) -> dict[str, Any]:
    named = {
        "endpoint": envelope.endpoint,
        "lane": envelope.lane,
        "deadline": read_moment(envelope.deadline, flag="--deadline"),
        "metadata": envelope.metadata,
    }
    return {name: value for name, value in named.items() if value is not None}


def _parse(text: bytes) -> dict[str, Any]:
    try:
        value = parse_json(text)
    except InvalidRequest as error:
        raise typer.BadParameter(error.message) from error
    if not isinstance(value, dict):
        raise typer.BadParameter("the JSON must be an object: a request body, or a whole submission")
    return value
