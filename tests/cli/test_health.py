from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from sqlalchemy import update

from cli.main import run_command
from models.chore_lease import ChoreLeases
from models.database import Database, now
from models.fleet import ALIVE_SECONDS, Fleet, WorkerCard
from models.tables.worker import Worker

HERE = socket.gethostname()


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_DATA_DIR", str(tmp_path))
    monkeypatch.setattr("cli.health._CHORE_SECONDS", 0.0)


@pytest.fixture
def fleet(database: Database) -> Fleet:
    """The workers of the database in the data folder."""
    return Fleet(database)


def card(host: str) -> WorkerCard:
    return WorkerCard(f"{host}:1:x", host, 1, "mill", 8, "cpu", "")


@contextmanager
def api_that_answers(code: int, **body: object) -> Iterator[int]:
    """A server whose /readyz answers so; gives its port."""

    class Readyz(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = json.dumps(body).encode()
            self.send_response(code if self.path == "/readyz" else 404)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Readyz) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_an_api_that_is_ready(capsys: pytest.CaptureFixture[str]) -> None:
    with api_that_answers(200, status="degraded") as port:
        code = run_command(["health", "api", "--host", "0.0.0.0", "--port", str(port)])

    assert (code, capsys.readouterr().out) == (0, "api is healthy\n")


def test_an_api_that_cannot_serve_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    with api_that_answers(503, reasons=["the database does not answer"]) as port:
        code = run_command(["health", "api", "--port", str(port)])

    assert code == 1
    assert "the database does not answer" in capsys.readouterr().err


def test_an_api_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as bound:
        # Bound and not listening: nobody else can have the port meanwhile.
        bound.bind(("127.0.0.1", 0))
        code = run_command(["health", "api", "--port", str(bound.getsockname()[1])])

    assert code == 1
    assert "does not answer" in capsys.readouterr().err


def test_a_worker_lives_as_long_as_its_heartbeat_is_fresh(database: Database, fleet: Fleet) -> None:
    fleet.join(card("elsewhere"))
    assert run_command(["health", "worker"]) == 1

    fleet.join(card(HERE))
    assert run_command(["health", "worker"]) == 0

    with database.transaction() as session:
        long_ago = now(session) - timedelta(seconds=ALIVE_SECONDS + 1)
        session.execute(update(Worker).values(heartbeat_at=long_ago))
    assert run_command(["health", "worker"]) == 1


def test_background_work_lives_as_long_as_it_takes_chores(database: Database) -> None:
    ChoreLeases(database, "elsewhere:1:x").take("sweep", pause_seconds=60, lease_seconds=60)
    assert run_command(["health", "background"]) == 1

    here = ChoreLeases(database, f"{HERE}:1:x")
    here.take("dust", pause_seconds=0, lease_seconds=60)
    assert run_command(["health", "background"]) == 1

    here.take("wipe", pause_seconds=60, lease_seconds=60)
    assert run_command(["health", "background"]) == 0


def test_where_others_share_the_chores_it_is_looked_again(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = ChoreLeases(database, f"{HERE}:1:x")
    monkeypatch.setattr("cli.health._CHORE_SECONDS", 60.0)
    monkeypatch.setattr(
        "cli.health.time.sleep", lambda _: here.take("sweep", pause_seconds=60, lease_seconds=60)
    )

    assert run_command(["health", "background"]) == 0


@pytest.mark.parametrize("role", ["worker", "background"])
def test_a_database_without_tables_is_the_roles_fault(role: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["health", role]) == 1
    assert "headrace migrate" in capsys.readouterr().err


def test_a_bare_url_counts_as_it_does_for_the_role(
    fleet: Fleet, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.join(card(HERE))
    monkeypatch.setenv("HEADRACE_DATA_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("DATABASE_URL", database_url)

    assert run_command(["health", "worker"]) == 0


def test_only_roles_have_a_health(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["health", "postman"]) == 2
    assert "postman" in capsys.readouterr().err
