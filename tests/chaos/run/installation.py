"""A whole Headrace as it is run in earnest: two APIs, two workers, background work, Valkey, a database."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx2
from pydantic import SecretStr

from bench.byte_model import make_byte_model
from models.database import Database
from models.fleet import Fleet
from models.keys import KeyRing
from models.migrate import migrate
from models.settings import Settings
from tests.acceptance.service import free_port
from tests.chaos.run.history import begin_history
from tests.chaos.run.role import Role
from tests.services.postgres_server import PostgresServer
from tests.services.redis_server import LastingValkey

MODEL = "marked"
NAMESPACE = "chaos"
#: Short, so that what a frozen worker held comes back soon; long for a heartbeat on a busy machine.
LEASE_SECONDS = 6.0

_LOOK_SECONDS = 0.05
_START_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class Servers:
    """Where ids and rows are kept; `postgres` is None with SQLite."""

    valkey: LastingValkey
    postgres: PostgresServer | None
    database_url: str

    @classmethod
    @contextmanager
    def started(cls, kind: str, folder: Path) -> Iterator[Self]:
        """Start them for a kind of database: `sqlite` or `postgresql`."""
        with ExitStack() as stack:
            valkey = stack.enter_context(LastingValkey())
            if kind == "sqlite":
                yield cls(valkey, None, f"sqlite:///{folder / 'headrace.db'}")
                return
            postgres = stack.enter_context(PostgresServer(is_durable=True))
            yield cls(valkey, postgres, postgres.create_database())


class Installation:
    """Keeps all roles running until it is stopped."""

    def __init__(self, folder: Path, servers: Servers) -> None:
        self.folder = folder
        self.servers = servers
        self.key = f"chaos-{secrets.token_hex(16)}"
        self.engine_log = folder / "engine.log"
        self.settings = _settings(folder, servers, self.key)
        self.database = Database(self.settings.sql_url)
        migrate(self.database)
        KeyRing(self.database).ensure_first(folder, self.key)
        begin_history(self.database)
        self.ports = (free_port(), free_port())
        self.apis = [self._role(f"api-{n}", "api", HEADRACE_PORT=str(p)) for n, p in enumerate(self.ports, 1)]
        self.workers = [self._worker(number) for number in (1, 2)]
        self.background = self._role("background", "worker.background")
        self._ending = threading.Event()
        self._tender = threading.Thread(target=self._tend, name="tender", daemon=True)

    @property
    def roles(self) -> Sequence[Role]:
        """All of them."""
        return [*self.apis, *self.workers, self.background]

    @property
    def urls(self) -> list[str]:
        """Where the APIs are."""
        return [f"http://127.0.0.1:{port}/v1" for port in self.ports]

    def start(self) -> None:
        """Start everything, keep it running from now on, and return when it can work."""
        self._tender.start()
        give_up_at = time.monotonic() + _START_SECONDS
        while not self._is_ready():
            if time.monotonic() > give_up_at:
                raise RuntimeError(f"the installation did not start: see the logs in {self.folder}")
            time.sleep(_LOOK_SECONDS)

    def stop(self) -> list[str]:
        """End everything, and return the names of those that did not end when told to."""
        if not self._ending.is_set():
            self._ending.set()
            self._tender.join()
        with ThreadPoolExecutor(len(self.roles)) as pool:
            ended = list(pool.map(lambda role: role.stop(), self.roles))
        return [role.name for role, has_ended in zip(self.roles, ended, strict=True) if not has_ended]

    def close(self) -> None:
        """Let the database go."""
        self.database.close()

    def _is_ready(self) -> bool:
        if len(Fleet(self.database).alive()) < len(self.workers):
            return False
        try:
            headers = {"Authorization": f"Bearer {self.key}"}
            answers = [httpx2.get(f"{url}/models", headers=headers, trust_env=False) for url in self.urls]
        except httpx2.TransportError:
            return False
        return all(answer.status_code == 200 for answer in answers)

    def _tend(self) -> None:
        while not self._ending.wait(_LOOK_SECONDS):
            for role in self.roles:
                role.look()

    def _role(self, name: str, module: str, *, is_forked: bool = False, **environment: str) -> Role:
        everything = {**self.settings.as_environment(), **environment}
        return Role(name, module, folder=self.folder, environment=everything, is_forked=is_forked)

    def _worker(self, number: int) -> Role:
        return self._role(
            f"worker-{number}",
            "bench.marked_worker",
            is_forked=True,
            HEADRACE_ENGINE_SPARE_FORK="1",
            HEADRACE_ENGINE_LOG=str(self.engine_log),
        )


def _settings(folder: Path, servers: Servers, key: str) -> Settings:
    values: dict[str, Any] = {
        "_env_file": None,
        "data_dir": folder,
        "database_url": servers.database_url,
        "redis_url": servers.valkey.url,
        "redis_namespace": NAMESPACE,
        "api_key": SecretStr(key),
        "api_threads": 32,
        "model": str(make_byte_model(folder / "model")),
        "served_model_name": MODEL,
        "max_jobs": 8,
        "max_num_seqs": 8,
        "num_threads": 1,
        "lease_seconds": LEASE_SECONDS,
        "crash_backoff_seconds": 0.5,
        "retry_backoff_seconds": 0.2,
        "drain_seconds": 1.0,
        "log_format": "json",
    }
    return Settings(**values)
