"""`headrace health`: whether a role on this machine does its work, for a container's health check."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from enum import StrEnum
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated

import httpx2
import typer

from cli.loopback import url_host
from cli.setting_flags import Flags, setting_flags
from models.errors import HeadraceError, StartupError
from models.settings import Settings, load_settings

if TYPE_CHECKING:
    from models.database import Database

#: How long the API may take to answer.
_ANSWER_SECONDS = 5.0
#: How long it is looked for a chore taken here: where other machines do background work too, they share them.
_CHORE_SECONDS = 5.0
_LOOK_AGAIN_SECONDS = 0.25


class Role(StrEnum):
    """What a process of Headrace may be."""

    API = "api"
    WORKER = "worker"
    BACKGROUND = "background"


class Unhealthy(HeadraceError):
    """The role does not do its work."""

    code = "unhealthy"


@setting_flags("host", "port", "data_dir", "database_url")
def health(
    role: Annotated[Role, typer.Argument(help="Which role of this machine.", show_default=False)],
    *,
    flags: Flags,
) -> None:
    """Say whether a role on this machine does its work: exit code 0, or 1 with the reason.

    The API is asked over HTTP; a worker and background work show in the database. DATABASE_URL counts where
    Headrace's own is not set.
    """
    settings = load_settings(bare_urls=True, **flags)
    try:
        match role:
            case Role.API:
                _check_api(settings)
            case Role.WORKER:
                _check_worker(settings)
            case Role.BACKGROUND:
                _check_background(settings)
    except StartupError as error:
        # A database without tables, say: it is the role that cannot start, and not this command.
        raise Unhealthy(error.message) from error
    typer.echo(f"{role} is healthy")


def _check_api(settings: Settings) -> None:
    url = f"http://{url_host(settings.host)}:{settings.port}/readyz"
    try:
        # A proxy in the environment is for the outside, and must not be asked for this machine.
        answer = httpx2.get(url, timeout=_ANSWER_SECONDS, trust_env=False)
    except httpx2.HTTPError as error:
        raise Unhealthy(f"{url} does not answer: {error}") from error
    if answer.status_code != HTTPStatus.OK:
        raise Unhealthy(f"the API is not ready: {answer.text.strip()}")


def _check_worker(settings: Settings) -> None:
    from models.fleet import ALIVE_SECONDS, Fleet

    host = socket.gethostname()
    with _database(settings) as database:
        if not any(worker.host == host for worker in Fleet(database).alive()):
            raise Unhealthy(f"no worker of {host} has joined, or none has beaten for {ALIVE_SECONDS:g} s")


def _check_background(settings: Settings) -> None:
    from models.chore_lease import has_taken_a_chore

    host, give_up_at = socket.gethostname(), time.monotonic() + _CHORE_SECONDS
    with _database(settings) as database:
        while not has_taken_a_chore(database, host):
            if time.monotonic() > give_up_at:
                raise Unhealthy(f"no background work of {host} has taken a chore lately")
            time.sleep(_LOOK_AGAIN_SECONDS)


@contextmanager
def _database(settings: Settings) -> Iterator[Database]:
    # Imported here because SQLAlchemy takes half a second, which the client commands need not pay.
    from models.database import Database
    from models.migrate import require_migrated

    with closing(Database(settings.sql_url)) as database:
        require_migrated(database)
        yield database
