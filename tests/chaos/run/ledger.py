"""All that is known when a run is over: what was asked, what is stored, what database and engines saw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from sqlalchemy import select

from models.database import Database
from models.tables.batch_job import BatchJob
from models.tables.job import Job, JobResult
from models.tables.project import IdempotencyKey, JobCount
from tests.chaos.run.asked import Ask, Line
from tests.chaos.run.history import Change, read_history

#: Lines of the logs that are quoted of one job.
_MAX_LOG_LINES = 30


@dataclass(frozen=True)
class Ledger:
    """Read once, when nothing moves any more."""

    asks: Sequence[Ask]
    jobs: dict[str, Job]
    results: dict[str, JobResult]
    batches: dict[str, BatchJob]
    counts: dict[tuple[str, str, str], int]
    #: Resource ids by Idempotency-Key.
    keys: dict[str, str]
    history: dict[str, list[Change]]
    #: How often an engine took each job in.
    runs: Counter[str]
    folder: Path

    @classmethod
    def read(cls, database: Database, asks: Sequence[Ask], engine_log: Path) -> Ledger:
        """Read everything."""
        with database.reading() as session:
            jobs = {job.id: job for job in session.scalars(select(Job).order_by(Job.id))}
            results = {result.job_id: result for result in session.scalars(select(JobResult))}
            batches = {batch.id: batch for batch in session.scalars(select(BatchJob))}
            counts = {
                (row.project_id, row.lane, row.status): row.num_jobs
                for row in session.scalars(select(JobCount))
            }
            keys = {row.key: row.resource_id for row in session.scalars(select(IdempotencyKey))}
        runs = Counter(engine_log.read_text().split() if engine_log.exists() else ())
        return cls(
            asks, jobs, results, batches, counts, keys, read_history(database), runs, engine_log.parent
        )

    @cached_property
    def lines_of_batches(self) -> dict[str, list[Job]]:
        """The jobs of each batch, by line."""
        found: dict[str, list[Job]] = {batch_id: [] for batch_id in self.batches}
        for job in self.jobs.values():
            if job.batch_id is not None:
                found.setdefault(job.batch_id, []).append(job)
        return {batch_id: sorted(jobs, key=lambda job: job.line or 0) for batch_id, jobs in found.items()}

    def jobs_of(self, ask: Ask, accepted_id: str) -> list[tuple[Line, Job | None]]:
        """Each line of a call with the job that was made of it; None where there is none."""
        if not ask.as_batch:
            return [(ask.lines[0], self.jobs.get(accepted_id))]
        by_line = {job.line: job for job in self.lines_of_batches.get(accepted_id, ())}
        return [(line, by_line.get(number)) for number, line in enumerate(ask.lines)]

    def evidence(self, job_id: str) -> list[str]:
        """Everything that is known of a job, for people."""
        lines = []
        job = self.jobs.get(job_id)
        if job is not None:
            names = ("status", "error_code", "attempt", "token", "isolation", "crashes_alone", "num_retries")
            lines.append(", ".join(f"{name}={getattr(job, name)}" for name in (*names, "custom_id", "lane")))
        result = self.results.get(job_id)
        if result is not None:
            lines.append(f"result: {result.body or result.error}")
        lines += [f"database: {change}" for change in self.history.get(job_id, ())]
        lines.append(f"engine runs: {self.runs[job_id]}")
        return lines + self._logged(job_id)

    def _logged(self, job_id: str) -> list[str]:
        found = [
            f"{log.name}: {line}"
            for log in sorted(self.folder.glob("*.log"))
            if log.name != "engine.log"
            for line in log.read_text(errors="replace").splitlines()
            if job_id in line
        ]
        return found[:_MAX_LOG_LINES]
