"""Houses to break: each with an empty database, an empty Valkey, and no part that runs yet."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bench.byte_model import make_byte_model
from models.database import Database
from models.queue import JobQueue
from tests.chaos.house import House, chaos_settings
from tests.chaos.part import Cradle
from tests.chaos.proxy import Proxy
from tests.models.pipeline import Pipeline
from tests.services.postgres_server import PostgresServer
from tests.services.redis_server import LastingValkey


@pytest.fixture(scope="session")
def byte_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model that is only a tokenizer."""
    return make_byte_model(tmp_path_factory.mktemp("model") / "bytes")


@pytest.fixture(scope="session")
def cradle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cradle]:
    """Where parts come from."""
    with Cradle(tmp_path_factory.mktemp("cradle")) as found:
        yield found


@pytest.fixture
def sqlite_url(migrated_file: Path, tmp_path: Path) -> str:
    """A migrated SQLite database without any row."""
    shutil.copy(migrated_file, tmp_path / "headrace.db")
    return f"sqlite:///{tmp_path / 'headrace.db'}"


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """An empty PostgreSQL database."""
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture(params=["sqlite_url", "postgres_url"])
def any_database_url(request: pytest.FixtureRequest) -> str:
    """A database of each kind in turn, without any row."""
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """The database of `house`; a module, class or test may give another."""
    return sqlite_url


@pytest.fixture
def postgres_proxy(
    postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Proxy]:
    """A way to the PostgreSQL of `postgres_url` on which replies get lost, or that is cut."""
    # Clients look for a socket of this name in the folder that is their host.
    path = tmp_path_factory.mktemp("pg") / postgres_server.socket.name
    with Proxy(postgres_server.socket, path) as proxy:
        yield proxy


@pytest.fixture
def proxied_url(postgres_url: str, postgres_proxy: Proxy) -> str:
    """The database of `postgres_url`, by way of `postgres_proxy`."""
    return f"{postgres_url.partition('?')[0]}?host={postgres_proxy.path.parent}"


@pytest.fixture
def make_house(
    tmp_path: Path, byte_model: Path, cradle: Cradle, database_url: str, redis_url: str
) -> Iterator[Callable[..., House]]:
    """Makes a house with some settings of its own; all that runs in it is killed at the end."""
    with ExitStack() as stack:

        def make(**given: Any) -> House:
            places = {"database_url": database_url, "redis_url": redis_url}
            settings = chaos_settings(tmp_path / "data", byte_model, **{**places, **given})
            return stack.enter_context(House(settings, cradle))

        yield make


@pytest.fixture
def house(make_house: Callable[..., House]) -> House:
    """A house with the settings of `chaos_settings`."""
    return make_house()


@pytest.fixture
def pipeline(database: Database, queue: JobQueue, redis_url: str, project_id: str) -> Iterator[Pipeline]:
    """The way of jobs, with the steps of a worker done by hand in this process."""
    with Pipeline(database, queue, redis_url, project_id) as found:
        yield found


@pytest.fixture
def own_valkey() -> Iterator[LastingValkey]:
    """A Valkey of the test's own, with an append-only file, which it may kill, fill and empty."""
    with LastingValkey() as server:
        yield server


@pytest.fixture
def record_figure(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Prints a measured figure past pytest's capturing, since it is to be read and not only asserted."""

    def record(figure: str) -> None:
        with capsys.disabled():
            print(f"\n  {figure}")

    return record
