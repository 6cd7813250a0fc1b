"""The real API, worker and Valkey as processes, with an engine that answers at once."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bench.byte_model import make_byte_model
from cli.child import ChildSpec
from cli.instance_lock import InstanceLock
from cli.role import role_argv
from cli.role_child import api_child, worker_child
from cli.supervisor import Supervisor
from cli.valkey import EmbeddedValkey
from models.database import Database
from models.fleet import Fleet
from models.keys import KeyRing
from models.migrate import migrate
from models.settings import Settings

#: The worker in the place of ours.
_WORKER = "bench.marked_worker"
_REPOSITORY = Path(__file__).parents[2]
#: How long one look at the children lasts while they start.
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class House:
    """What serves: its address and key, the database behind it, and who looks after the processes."""

    port: int
    key: str
    database: Database
    supervisor: Supervisor


@contextmanager
def serving(folder: Path, database_url: str | None) -> Iterator[House]:
    """Serve from a new data folder until the end of the block; without a URL the database is SQLite there.

    Raises StartupError where a part does not start.
    """
    settings = Settings(
        data_dir=folder / "data",
        database_url=database_url,
        model=str(make_byte_model(folder / "bytes")),
        port=_free_port(),
        log_level="warning",
        log_format="json",
    )
    with ExitStack() as stack:
        lock = stack.enter_context(InstanceLock(settings.data_dir))
        valkey = stack.enter_context(EmbeddedValkey(settings.data_dir, lock=lock))
        settings = settings.model_copy(update={"redis_url": valkey.url})
        database = stack.enter_context(closing(Database(settings.sql_url)))
        migrate(database)
        key = KeyRing(database).create("bench").secret
        api = api_child(settings)
        worker = replace(worker_child(settings, Fleet(database)), argv=role_argv(_WORKER))
        supervisor = stack.enter_context(Supervisor([valkey.spec, *map(_from_checkout, (api, worker))]))
        while not supervisor.ready:
            supervisor.poll(_POLL_SECONDS)
        yield House(settings.port, key, database, supervisor)


def _from_checkout(spec: ChildSpec) -> ChildSpec:
    """The same child, which finds what is not installed."""
    return replace(spec, env={**(spec.env or os.environ), "PYTHONPATH": str(_REPOSITORY)})


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
