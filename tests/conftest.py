"""What tests of every package share: real servers, a migrated database, a queue, settings.

`database`, `project_id` and the rest stand on `database_url` (SQLite) and `redis_url` (Valkey). A module or
package whose tests must hold on both kinds overrides just that one:

    @pytest.fixture
    def database_url(any_database_url: str) -> str:
        return any_database_url
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from models.database import Database
from models.keys import default_project
from models.migrate import migrate
from models.queue import JobQueue
from models.settings import PREFIX, Settings
from tests.examples import register_profiles
from tests.services.postgres_server import PostgresServer
from tests.services.redis_server import RedisServer, ValkeyServer
from tests.services.s3_server import S3Server

#: Variables that are meant for the tests.
_FOR_TESTS = frozenset({"HEADRACE_TEST_CACHE", "HEADRACE_BENCH_DATA"})
#: Folders by what their tests cost, the cheapest first; files beside them come before all.
_FOLDERS = ("models", "api", "cli", "engine", "bench", "worker", "acceptance", "chaos")

register_profiles()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Fast tests first: what is broken shows soon."""
    root = Path(__file__).parent

    def cost(item: pytest.Item) -> int:
        folder = item.path.relative_to(root).parts[0]
        return _FOLDERS.index(folder) if folder in _FOLDERS else -1

    items.sort(key=cost)


@pytest.fixture(autouse=True, scope="session")
def isolated_environment() -> Iterator[None]:
    """No setting of the caller reaches a test, nor any process that a test starts."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            ours = name.startswith(PREFIX) and name not in _FOR_TESTS
            if ours or name in {"DATABASE_URL", "REDIS_URL"}:
                patch.delenv(name)
        yield


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[ValkeyServer]:
    with ValkeyServer() as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture
def redis_url(valkey_server: ValkeyServer) -> str:
    """An empty Redis."""
    valkey_server.flush()
    return valkey_server.url


@pytest.fixture(params=["valkey", "redis"])
def any_redis_server(request: pytest.FixtureRequest) -> RedisServer:
    """Each kind of server in turn, empty."""
    server: RedisServer = request.getfixturevalue(f"{request.param}_server")
    server.flush()
    return server


@pytest.fixture
def any_redis_url(any_redis_server: RedisServer) -> str:
    """An empty Redis of each kind in turn."""
    return any_redis_server.url


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file, to be copied."""
    path = tmp_path_factory.mktemp("migrated") / "headrace.db"
    database = Database(f"sqlite:///{path}")
    migrate(database)
    database.close()
    return path


@pytest.fixture
def database_url(tmp_path: Path) -> str:
    """An empty database."""
    return f"sqlite:///{tmp_path / 'headrace.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def any_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database of each kind in turn."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'headrace.db'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    url = server.create_database()
    yield url
    server.drop_database(url)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A migrated database without any row."""
    found = Database(database_url)
    migrate(found)
    yield found
    found.close()


@pytest.fixture
def project_id(database: Database) -> str:
    """The default project."""
    with database.transaction() as session:
        return default_project(session)


@pytest.fixture
def queue(redis_url: str) -> Iterator[JobQueue]:
    """The accepting side of the queue, namespace `test`."""
    found = JobQueue(redis_url, "test")
    yield found
    found.close()


@pytest.fixture
def settings(tmp_path: Path) -> Callable[..., Settings]:
    """Makes settings of what is given, of defaults, and of nothing else; the data folder is `tmp_path`."""

    def make(**given: Any) -> Settings:
        # Read in an empty folder: `.env` and `headrace.toml` are looked up in the working one.
        (tmp_path / "empty").mkdir(exist_ok=True)
        with chdir(tmp_path / "empty"):
            return Settings(**{"data_dir": tmp_path / "data", **given})

    return make
