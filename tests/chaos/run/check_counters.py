"""Counters that are kept along against a fresh count of all rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from models.tables.batch_job import BatchJob, BatchStatus
from models.tables.job import Job, JobStatus
from tests.chaos.run.breach import Breach, Kind
from tests.chaos.run.ledger import Ledger


def check_counters(ledger: Ledger) -> Iterator[Breach]:
    """Find counters of projects and batches that are wrong."""
    fresh = Counter((job.project_id, job.lane, job.status) for job in ledger.jobs.values())
    for key in sorted(fresh.keys() | ledger.counts.keys()):
        if fresh[key] != ledger.counts.get(key, 0):
            subject = f"{key} has {fresh[key]} jobs and is counted {ledger.counts.get(key)}"
            yield Breach(Kind.MISCOUNTED, subject, [])
    for batch_id, jobs in ledger.lines_of_batches.items():
        batch = ledger.batches[batch_id]
        kept, counted = _kept(batch), _counted(jobs)
        if kept != counted:
            lines = [f"{job.id}: {job.status}, {job.num_prompt_tokens} tokens" for job in jobs]
            yield Breach(Kind.MISCOUNTED, f"{batch_id} has {counted} and says {kept}", lines)


def _kept(batch: BatchJob) -> dict[str, object]:
    return {
        **{status.value: getattr(batch, status.value) for status in JobStatus},
        "total": batch.total,
        "is completed": batch.status == BatchStatus.COMPLETED and batch.completed_at is not None,
        "tokens": (batch.num_prompt_tokens, batch.num_completion_tokens),
    }


def _counted(jobs: list[Job]) -> dict[str, object]:
    statuses = Counter(job.status for job in jobs)
    num_open = statuses[JobStatus.QUEUED] + statuses[JobStatus.RUNNING]
    return {
        **{status.value: statuses[status] for status in JobStatus},
        "total": len(jobs),
        "is completed": num_open == 0,
        "tokens": (
            sum(job.num_prompt_tokens or 0 for job in jobs),
            sum(job.num_completion_tokens or 0 for job in jobs),
        ),
    }
