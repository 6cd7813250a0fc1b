"""The roles as children of a supervisor."""

from __future__ import annotations

import os
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping

from cli.child import ChildSpec
from cli.loopback import url_host
from cli.role import role_argv
from models.chore_lease import has_taken_a_chore
from models.database import Database
from models.errors import HeadraceError
from models.fleet import Fleet
from models.settings import PREFIX, Settings

#: How long one look at the API's health may take.
_HEALTH_SECONDS = 0.5
_API_START_SECONDS = 60.0
_BACKGROUND_START_SECONDS = 60.0
#: For the chores that it is at.
_BACKGROUND_STOP_SECONDS = 20.0
#: A worker may have to fetch or convert a model of many gigabytes first.
_WORKER_START_SECONDS = 6 * 3600.0
#: On top of the worker's own `drain_seconds`, for the steps before and after it.
_WORKER_STOP_MARGIN_SECONDS = 20.0

#: Variables meant for other programs, which would steer a role if it inherited them.
_BARE_URLS = ("DATABASE_URL", "REDIS_URL")


def api_child(settings: Settings) -> ChildSpec:
    """The API; ready once it answers."""
    url = f"http://{url_host(settings.host)}:{settings.port}/healthz"
    return ChildSpec(
        "api",
        role_argv("api"),
        env=child_environment(settings),
        ready=lambda _: _answers(url),
        start_timeout_seconds=_API_START_SECONDS,
    )


def worker_child(settings: Settings, fleet: Fleet) -> ChildSpec:
    """The worker; ready once its model is loaded and it has joined the fleet."""
    return ChildSpec(
        "worker",
        role_argv("worker"),
        env=child_environment(settings),
        ready=_joined(fleet),
        start_timeout_seconds=_WORKER_START_SECONDS,
        stop_timeout_seconds=settings.drain_seconds + _WORKER_STOP_MARGIN_SECONDS,
    )


def background_child(settings: Settings, database: Database) -> ChildSpec:
    """Background work; ready once a message has gone all the way and a chore was taken for it."""
    host = socket.gethostname()

    def ready(pid: int) -> bool:
        try:
            return has_taken_a_chore(database, host, pid)
        except HeadraceError:
            return False

    return ChildSpec(
        "background",
        role_argv("worker.background"),
        env=child_environment(settings),
        ready=ready,
        start_timeout_seconds=_BACKGROUND_START_SECONDS,
        stop_timeout_seconds=_BACKGROUND_STOP_SECONDS,
    )


def child_environment(settings: Settings) -> Mapping[str, str]:
    """Our environment with exactly these settings in it, and without the bare URLs."""
    ours = {PREFIX + name.upper() for name in Settings.model_fields}
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.upper() not in ours and name not in _BARE_URLS
    }
    return {**kept, **settings.as_environment()}


def _answers(url: str) -> bool:
    # A proxy in the environment is for the outside, and must not be asked for this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=_HEALTH_SECONDS) as reply:
            return bool(reply.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def _joined(fleet: Fleet) -> Callable[[int], bool]:
    """Say whether the worker with this pid has joined the fleet."""
    host = socket.gethostname()

    def joined(pid: int) -> bool:
        try:
            return any((worker.host, worker.pid) == (host, pid) for worker in fleet.alive())
        except HeadraceError:
            return False

    return joined
