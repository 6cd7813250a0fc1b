from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from models.database import Database
from models.settings import Settings
from tests.cli.process import REPOSITORY
from worker.__main__ import main
from worker.connections import open_database


@pytest.fixture
def start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[[Settings], tuple[int, list[str]]]:
    """Runs `python -m worker` within this process; returns its exit code and what it wrote."""
    monkeypatch.setattr("worker.__main__.configure_logging", lambda _: None)
    monkeypatch.chdir(tmp_path)

    def run(settings: Settings) -> tuple[int, list[str]]:
        for name, value in settings.as_environment().items():
            monkeypatch.setenv(name, value)
        code = main()
        return code, capsys.readouterr().err.splitlines()

    return run


def test_says_that_the_database_is_not_migrated(
    start: Callable[[Settings], tuple[int, list[str]]], settings: Callable[..., Settings], redis_url: str
) -> None:
    code, (line,) = start(settings(redis_url=redis_url))

    assert code == 2
    assert line.startswith("headrace worker: the database is empty")
    assert "run `headrace migrate`" in line


def test_says_that_there_is_no_redis(
    start: Callable[[Settings], tuple[int, list[str]]], settings: Callable[..., Settings], database: Database
) -> None:
    code, (line,) = start(settings(database_url=f"{database.engine.url}"))

    assert code == 2
    assert line.startswith("headrace worker: no Redis: ")
    assert "HEADRACE_REDIS_URL" in line


def test_says_that_there_is_no_such_model(
    start: Callable[[Settings], tuple[int, list[str]]],
    settings: Callable[..., Settings],
    database: Database,
    redis_url: str,
    tmp_path: Path,
) -> None:
    missing = f"{tmp_path / 'no-such-model'}"

    code, (line,) = start(settings(database_url=f"{database.engine.url}", redis_url=redis_url, model=missing))

    assert code == 2
    assert line.startswith("headrace worker: ")
    assert missing in line


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"batching": "static", "admission": "optimistic"}, "admission must be reserve with batching static"),
        ({"block_size": 24}, "block_size must be one of 16, 32, 64, 128, 256, not 24"),
        ({"max_num_seqs": 64, "max_num_batched_tokens": 100}, "max_num_batched_tokens must be at least 192"),
    ],
)
def test_says_which_settings_do_not_go_together(
    start: Callable[[Settings], tuple[int, list[str]]],
    settings: Callable[..., Settings],
    given: dict[str, object],
    named: str,
) -> None:
    code, (line,) = start(settings(**given))

    assert code == 2
    assert line.startswith(f"headrace worker: {named}")


def test_threads_do_not_spin_while_they_wait(
    start: Callable[[Settings], tuple[int, list[str]]],
    settings: Callable[..., Settings],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beside another program on a core, threads that spin make a step many times as long."""
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    start(settings(block_size=24))
    ours = os.environ["OMP_WAIT_POLICY"]
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    start(settings(block_size=24))

    assert (ours, os.environ["OMP_WAIT_POLICY"]) == ("passive", "active")


def test_the_process_ends_with_2_and_one_line(tmp_path: Path) -> None:
    worker = subprocess.run(
        [sys.executable, "-m", "worker"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "HEADRACE_LEASE_SECONDS": "soon"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert worker.returncode == 2
    assert worker.stdout == ""
    (line,) = worker.stderr.splitlines()
    assert line.startswith("headrace worker: bad settings: HEADRACE_LEASE_SECONDS")


def test_what_the_database_was_before_its_start_no_worker_knows(
    settings: Callable[..., Settings], database: Database
) -> None:
    """One that is started again in an outage shall not be the first to call the others dead."""
    opened = open_database(settings(database_url=f"{database.engine.url}"))

    assert opened.outage.is_near(30.0)
    opened.close()
