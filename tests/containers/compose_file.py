"""docker-compose.yml as Docker reads it, as far as ours goes: merge keys, variables, durations."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML

from tests.cli.process import REPOSITORY

PATH = REPOSITORY / "docker-compose.yml"

#: `$$`, `${NAME}`, `${NAME:-default}` and `${NAME:?message}`.
_VARIABLE = re.compile(r"\$\$|\$\{(?P<name>\w+)(?::(?P<kind>[-?])(?P<text>[^}]*))?\}")
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600}


class MissingVariable(Exception):
    """A variable without a default is not given."""


@dataclass(frozen=True, slots=True)
class Service:
    """What the file says of one service."""

    image: str
    command: Sequence[str]
    environment: Mapping[str, str]
    #: The command of the health check, without the word CMD.
    health: Sequence[str]
    restart: str
    #: By the service that is waited for: what it must have reached.
    waits_for: Mapping[str, str]
    #: Between SIGTERM and SIGKILL.
    stop_grace_seconds: float
    #: Names of volumes by the folders where they are.
    volumes: Mapping[str, str]


def read_document() -> dict[str, Any]:
    """The file as YAML, with its variables as they stand."""
    return dict(YAML(typ="safe").load(PATH))


def read_services(variables: Mapping[str, str]) -> dict[str, Service]:
    """The services with these variables put in. Raises MissingVariable."""
    document = _put_in(read_document(), variables)
    return {name: _service(found) for name, found in document["services"].items()}


def duration_seconds(text: str) -> float:
    """What `30s` or `1h` means."""
    return float(text[:-1]) * _UNIT_SECONDS[text[-1]]


def _service(found: Mapping[str, Any]) -> Service:
    kind, *health = found.get("healthcheck", {}).get("test", ["CMD"])
    if kind != "CMD":
        raise ValueError(f"a health check that is no command: {found['healthcheck']}")
    return Service(
        image=found["image"],
        command=found.get("command", ()),
        environment=found["environment"],
        health=health,
        restart=found["restart"],
        waits_for={name: how["condition"] for name, how in found.get("depends_on", {}).items()},
        stop_grace_seconds=duration_seconds(found.get("stop_grace_period", "10s")),
        volumes={folder: name for name, folder in (volume.split(":") for volume in found["volumes"])},
    )


def _put_in(value: Any, variables: Mapping[str, str]) -> Any:
    match value:
        case str():
            return _VARIABLE.sub(lambda found: _replacement(found, variables), value)
        case dict():
            return {name: _put_in(part, variables) for name, part in value.items()}
        case list():
            return [_put_in(part, variables) for part in value]
    return value


def _replacement(found: re.Match[str], variables: Mapping[str, str]) -> str:
    name = found["name"]
    if name is None:
        return "$"
    if variables.get(name):
        return variables[name]
    if found["kind"] == "-":
        return found["text"]
    raise MissingVariable(name)
