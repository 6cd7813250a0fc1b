"""The service on one machine: Valkey, API, background work and worker under one supervisor."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

from cli.first_start import first_start_notice
from cli.instance_lock import InstanceLock
from cli.loopback import url_host
from cli.port import check_port_free
from cli.role_child import api_child, background_child, worker_child
from cli.supervisor import Supervisor
from cli.valkey import EmbeddedValkey
from models.database import Database
from models.fleet import Fleet
from models.keys import KeyRing
from models.migrate import migrate
from models.presence import require_redis
from models.settings import Settings


def serve(settings: Settings, *, announce: Callable[[str], None]) -> int:
    """Serve until a signal asks to stop; return the exit code.

    `announce` is told what a person at the terminal should know: that the model is converted first, and
    when and where the service answers. Raises StartupError for a port or a data folder in use, for a database
    or a Redis that does not answer, and for a role that cannot be started.
    """
    check_port_free(settings.host, settings.port)
    with ExitStack() as stack:
        lock = stack.enter_context(InstanceLock(settings.data_dir))
        specs = []
        if settings.redis_url is None:
            valkey = stack.enter_context(EmbeddedValkey(settings.data_dir, lock=lock))
            specs.append(valkey.spec)
            settings = settings.model_copy(update={"redis_url": valkey.url})
        else:
            require_redis(settings.redis_url)
        database = stack.enter_context(closing(Database(settings.sql_url)))
        migrate(database)
        given = settings.api_key.get_secret_value() if settings.api_key else None
        KeyRing(database).ensure_first(settings.data_dir, given)
        specs += [
            api_child(settings),
            background_child(settings, database),
            worker_child(settings, Fleet(database)),
        ]
        if notice := first_start_notice(settings):
            announce(notice)
        return Supervisor(specs, on_ready=lambda: announce(ready_line(settings))).run()


def ready_line(settings: Settings) -> str:
    """Say where the service answers, for which model, and where the key is."""
    url = f"http://{url_host(settings.host)}:{settings.port}/v1"
    return f"Headrace is ready: {url} · model {settings.served_name} · {_key_place(settings)}"


def _key_place(settings: Settings) -> str:
    path: Path = settings.data_dir / "api_key"
    if settings.api_key is not None:
        return "key as in HEADRACE_API_KEY"
    return f"key in {path}" if path.exists() else "key as made by `headrace keys create`"
