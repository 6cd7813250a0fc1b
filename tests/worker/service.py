"""A Headrace without its API: a database, a queue, and workers as processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from sqlalchemy import select

from models.accept import Acceptance, Submission
from models.database import Database, now
from models.fleet import Fleet
from models.keys import default_project
from models.migrate import migrate
from models.queue import JobQueue
from models.settings import Settings
from models.tables.job import FINAL_STATUSES, Job, JobResult, Lane
from models.validation import read_submission
from tests.cli.process import REPOSITORY
from tests.worker.waiting import eventually

#: A worker imports torch and loads its model first, on a machine that may be busy.
_START_SECONDS = 180.0


class Service:
    """Accepts jobs, starts workers, and looks at what becomes of the jobs."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.database = Database(settings.sql_url)
        migrate(self.database)
        with self.database.transaction() as session:
            self.project_id = default_project(session)
        self.queue = JobQueue(settings.redis_url or "", settings.redis_namespace)
        self._open = ExitStack()
        self._open.callback(self.database.close)
        self._open.callback(self.queue.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def start_worker(self, module: str = "worker", **environment: str) -> subprocess.Popen[bytes]:
        """Start a worker, which is killed at the end; `await_workers` waits until it is there."""
        log = self._open.enter_context((self.settings.data_dir / "worker.log").open("ab"))
        worker = subprocess.Popen(
            [sys.executable, "-m", module],
            # Not in the checkout, where a `.env` may lie.
            cwd=self.settings.data_dir,
            env={
                **os.environ,
                "PYTHONPATH": str(REPOSITORY),
                **self.settings.as_environment(),
                **environment,
            },
            stderr=log,
        )
        self._open.callback(worker.wait)
        self._open.callback(worker.kill)
        return worker

    def await_workers(self, *workers: subprocess.Popen[bytes]) -> None:
        """Return when these workers take jobs."""
        fleet = Fleet(self.database)

        def all_there() -> bool:
            ended = [worker for worker in workers if worker.poll() is not None]
            assert not ended, Path(self.settings.data_dir / "worker.log").read_text()
            return {card.pid for card in fleet.alive()} >= {worker.pid for worker in workers}

        eventually(all_there, within_seconds=_START_SECONDS)

    def accept(self, bodies: Sequence[dict[str, Any]], **values: Any) -> list[str]:
        """Hand in a list, and return the ids of its jobs in order."""
        drafts = [read_submission({"body": body, **values}, self.settings) for body in bodies]
        lines = [replace(draft, line=line) for line, draft in enumerate(drafts)]
        acceptance = Acceptance(self.database, self.queue, dispatch_depth=self.settings.dispatch_depth)
        batch_id = acceptance.accept(Submission(self.project_id, lines, as_batch=True))
        with self.database.reading() as session:
            return list(session.scalars(select(Job.id).where(Job.batch_id == batch_id).order_by(Job.line)))

    def jobs(self, job_ids: Sequence[str], *statuses: str) -> list[Job]:
        """These jobs' rows, in order; only those of some statuses if any are given."""
        with self.database.reading() as session:
            found = {job.id: job for job in session.scalars(select(Job).where(Job.id.in_(job_ids)))}
        return [found[id] for id in job_ids if not statuses or found[id].status in statuses]

    def bodies(self, job_ids: Sequence[str]) -> list[str]:
        """The stored answers of these jobs, in order; each has one."""
        with self.database.reading() as session:
            rows = session.execute(
                select(JobResult.job_id, JobResult.body).where(JobResult.job_id.in_(job_ids))
            ).all()
        found = {row[0]: row[1] for row in rows}
        return [found[job_id] or "" for job_id in job_ids]

    def seconds_past_leases(self, job_ids: Sequence[str]) -> float:
        """How long ago the last lease of these running jobs ended; negative while one holds."""
        with self.database.reading() as session:
            last = session.scalars(select(Job.lease_until).where(Job.id.in_(job_ids))).all()
            at = now(session)
        return min((at - until).total_seconds() for until in last if until is not None)

    def await_finished(self, job_ids: Sequence[str], *, within_seconds: float = 180.0) -> None:
        """Return when each of these jobs has a final status."""
        eventually(
            lambda: len(self.jobs(job_ids, *FINAL_STATUSES)) == len(job_ids), within_seconds=within_seconds
        )

    def depth(self) -> int:
        """Entries in Redis, delivered or not."""
        return sum(self.queue.depth(self.settings.served_name, lane) for lane in Lane)


def prompts(count: int, *, max_tokens: int, **body: Any) -> list[dict[str, Any]]:
    """Completions that run to exactly `max_tokens` tokens each."""
    fixed = {"max_tokens": max_tokens, "ignore_eos": True, **body}
    return [{"prompt": f"The water of mill {number} runs", **fixed} for number in range(count)]


def service_settings(folder: Path, model: Path, **given: Any) -> Settings:
    """Settings of a small worker that shares its machine with others."""
    folder.mkdir(parents=True, exist_ok=True)
    small = {"max_num_seqs": 8, "max_jobs": 8, "kv_cache_bytes": 2**22, "num_threads": 1}
    return Settings(
        **{
            "_env_file": None,
            "data_dir": folder,
            "model": str(model),
            "redis_namespace": "test",
            "log_format": "json",
            **small,
            **given,
        }
    )
