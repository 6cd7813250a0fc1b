"""Publishing while PostgreSQL refuses every connection, and after it has come back."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import psycopg
import pytest
from sqlalchemy.engine import make_url

from models.backoff import Backoff
from models.database import Database
from models.lease import ClaimedJob
from models.migrate import migrate
from models.publication import Outcome
from models.publication import publish as commit
from models.signals import Signals
from tests.models.pipeline import Pipeline as Backlog
from tests.services.postgres_server import PostgresServer
from worker.events import Refused
from worker.logprob_body import TokenBytes
from worker.pipeline import Pipeline
from worker.publish import Publisher


class Outage:
    """Takes a database away and gives it back; everybody else's is unharmed."""

    def __init__(self, url: str) -> None:
        parsed = make_url(url)
        self._name = parsed.database or ""
        self._host = str(parsed.query["host"])

    def begin(self) -> None:
        self._execute(f'ALTER DATABASE "{self._name}" WITH ALLOW_CONNECTIONS false')
        self._execute(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{self._name}'"
        )

    def end(self) -> None:
        self._execute(f'ALTER DATABASE "{self._name}" WITH ALLOW_CONNECTIONS true')

    def _execute(self, statement: str) -> None:
        with psycopg.connect(
            host=self._host, user="postgres", dbname="postgres", autocommit=True
        ) as connection:
            connection.execute(statement.encode())


@pytest.fixture
def database_url(postgres_server: PostgresServer) -> Iterator[str]:
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    found = Database(database_url)
    migrate(found)
    yield found
    found.close()


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """Counts the tries to commit."""
    counted = threading.Semaphore(0)

    def publish(database: Database, outcomes: Sequence[Outcome], *, backoff: Backoff) -> set[str]:
        counted.release()
        return commit(database, outcomes, backoff=backoff)

    monkeypatch.setattr("worker.publish.publish", publish)
    monkeypatch.setattr("worker.publish._FIRST_RETRY_SECONDS", 0.05)
    return counted


@pytest.fixture
def refused(backlog: Backlog, pipeline: Pipeline) -> ClaimedJob:
    """A job that has ended, and waits to be published."""
    backlog.accept()
    (job,) = backlog.claim()
    pipeline.leases.hold([job.held])
    pipeline.events.put(Refused(job, "invalid_value", "No."))
    pipeline.events.put(None)
    return job


@pytest.fixture
def publishing(
    backlog: Backlog, pipeline: Pipeline, redis_url: str, token_bytes: TokenBytes, refused: ClaimedJob
) -> Iterator[threading.Thread]:
    """A publisher's thread, to be started."""
    signals = Signals(redis_url, "test")
    consumer = backlog.consumer("w1")
    publisher = Publisher(
        pipeline, database=backlog.database, consumer=consumer, signals=signals, token_bytes=token_bytes
    )
    thread = threading.Thread(target=publisher.run)
    yield thread
    pipeline.stopping.set()
    thread.join(60)
    signals.close()


def test_commits_when_the_database_is_back(
    backlog: Backlog,
    database_url: str,
    refused: ClaimedJob,
    publishing: threading.Thread,
    tries: threading.Semaphore,
) -> None:
    outage = Outage(database_url)
    outage.begin()
    publishing.start()
    assert all(tries.acquire(timeout=60) for _ in range(3))

    outage.end()
    publishing.join(60)

    assert backlog.job(refused.id).status == "failed"


def test_a_worker_that_stops_leaves_its_results_to_others(
    backlog: Backlog,
    pipeline: Pipeline,
    database_url: str,
    refused: ClaimedJob,
    publishing: threading.Thread,
    tries: threading.Semaphore,
) -> None:
    outage = Outage(database_url)
    outage.begin()
    publishing.start()
    assert tries.acquire(timeout=60)

    pipeline.stopping.set()
    publishing.join(60)

    assert not publishing.is_alive()
    # Still held: given back at the end if the database has come back by then.
    assert pipeline.leases.all() == [refused.held]
    outage.end()
    assert backlog.job(refused.id).status == "running"
