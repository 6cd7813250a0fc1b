"""Background work as processes of their own. No worker runs, so what is published here they published."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import select

from models.chore_lease import ChoreLeases
from models.database import now
from models.tables.chore import ChoreLease
from tests.cli.process import REPOSITORY
from tests.services.redis_server import ValkeyServer
from tests.worker.service import Service, prompts, service_settings
from tests.worker.waiting import eventually
from worker.background.app import CHORE_TASK, make_app
from worker.background.schedule import Schedule

BACKGROUND = "worker.background"
MODEL = "mill"
DISPATCH = f"dispatch:{MODEL}"
#: A chore that is begun every second is not begun again within this time.
PAUSE = timedelta(seconds=0.75)


@pytest.fixture
def own_valkey() -> Iterator[ValkeyServer]:
    """A server that the test may kill."""
    with ValkeyServer() as server:
        yield server


def number_of_runs(service: Service) -> int:
    """How often the jobs of the model were dispatched."""
    with service.database.reading() as session:
        return session.scalars(select(ChoreLease.token).where(ChoreLease.name == DISPATCH)).one_or_none() or 0


def await_at_work(service: Service, *processes: subprocess.Popen[bytes]) -> None:
    """Return when each of these processes has taken a chore."""
    seen: set[str] = set()

    def all_seen() -> bool:
        ended = [process for process in processes if process.poll() is not None]
        assert not ended, (service.settings.data_dir / "worker.log").read_text()
        with service.database.reading() as session:
            seen.update(owner.split(":")[1] for owner in session.scalars(select(ChoreLease.owner)))
        return seen >= {f"{process.pid}" for process in processes}

    eventually(all_seen, within_seconds=120)


def send_doubles(service: Service, count: int) -> None:
    """Ask for the same chore again and again."""
    app = make_app(service.settings, Schedule([], ChoreLeases(service.database, "asks only")))
    for _ in range(count):
        app.send_task(CHORE_TASK, args=[DISPATCH])
    app.close()


def test_two_processes_share_the_chores_and_one_is_enough(
    any_database_url: str, redis_url: str, valkey_server: ValkeyServer, tmp_path: Path
) -> None:
    settings = service_settings(
        tmp_path / "data", Path(MODEL), database_url=any_database_url, redis_url=redis_url
    )
    with Service(settings) as service, valkey_server.client() as redis:
        # A variable that is meant for another Celery changes nothing.
        elsewhere = {"CELERY_BROKER_URL": "redis://127.0.0.1:9/0"}
        first = service.start_worker(BACKGROUND, **elsewhere)
        second = service.start_worker(BACKGROUND, **elsewhere)
        await_at_work(service, first, second)

        with service.database.reading() as session:
            began_at, runs_before = now(session), number_of_runs(service)
        send_doubles(service, 40)
        eventually(
            lambda: redis.llen("test:celery:background") == 0 and number_of_runs(service) > runs_before
        )
        runs = number_of_runs(service) - runs_before
        with service.database.reading() as session:
            took = now(session) - began_at

        # The first and the last of them may lie at either end of the time that it took.
        assert (runs - 1) * PAUSE <= took

        first.kill()
        job_ids = service.accept(prompts(3, max_tokens=2))
        eventually(lambda: service.depth() == 3, within_seconds=120)
        assert all(job.dispatched_at is not None for job in service.jobs(job_ids))

        second.send_signal(signal.SIGTERM)
        assert second.wait(60) == 0
        assert "Traceback" not in (settings.data_dir / "worker.log").read_text()


def test_it_goes_on_when_redis_was_emptied_and_when_it_was_away(
    own_valkey: ValkeyServer, tmp_path: Path
) -> None:
    settings = service_settings(tmp_path / "data", Path(MODEL), redis_url=own_valkey.url)
    with Service(settings) as service:
        background = service.start_worker(BACKGROUND)
        await_at_work(service, background)
        service.accept(prompts(2, max_tokens=2))
        eventually(lambda: service.depth() == 2)

        runs_before = number_of_runs(service)
        own_valkey.flush()
        eventually(lambda: service.depth() == 2)
        # The one that was under way, the one that noticed, and one between that and our own look.
        assert number_of_runs(service) - runs_before <= 3

        own_valkey.kill()
        service.accept(prompts(1, max_tokens=2))
        own_valkey.start_again()
        eventually(lambda: service.depth() == 3, within_seconds=120)

        own_valkey.kill()
        background.send_signal(signal.SIGTERM)
        assert background.wait(60) == 0


def test_it_says_what_is_missing(tmp_path: Path, redis_url: str) -> None:
    settings = service_settings(tmp_path / "data", Path(MODEL), redis_url=redis_url)

    ended = subprocess.run(
        [sys.executable, "-m", BACKGROUND],
        cwd=tmp_path,
        env={"PYTHONPATH": str(REPOSITORY), **settings.as_environment()},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert (ended.returncode, ended.stdout) == (2, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith("headrace background: the database is empty")
