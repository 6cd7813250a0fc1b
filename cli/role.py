"""`headrace api`, `worker`, `background`: one role alone, for machines that share a database and a Redis."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from cli.setting_flags import BACKGROUND_FLAGS, LOG_FLAGS, WORKER_FLAGS, Flags, setting_flags
from models.settings import PREFIX

#: What every role can be told.
_PLACES = ("data_dir", "database_url", "redis_url")


@setting_flags("host", "port", "api_threads", "model", "served_model_name", "models", *_PLACES, *LOG_FLAGS)
def api(flags: Flags) -> None:
    """Serve the HTTP API alone. DATABASE_URL and REDIS_URL count where Headrace's own are not set."""
    _become("api", flags)


@setting_flags(*WORKER_FLAGS, *_PLACES, *LOG_FLAGS)
def worker(flags: Flags) -> None:
    """Compute jobs alone. DATABASE_URL and REDIS_URL count where Headrace's own are not set."""
    _become("worker", flags)


@setting_flags(*BACKGROUND_FLAGS, *_PLACES, *LOG_FLAGS)
def background(flags: Flags) -> None:
    """Do background work alone. DATABASE_URL and REDIS_URL count where Headrace's own are not set."""
    _become("worker.background", flags)


def role_argv(role: str) -> list[str]:
    """The command line of a role, a module. -P keeps an `api.py` in the working folder from being run."""
    return [sys.executable, "-P", "-m", role]


def _become(role: str, flags: Flags) -> NoReturn:
    given = {PREFIX + name.upper(): str(value) for name, value in flags.items() if value is not None}
    argv = role_argv(role)
    os.execve(argv[0], argv, {**os.environ, **given})
