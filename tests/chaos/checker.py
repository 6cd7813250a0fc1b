"""What must hold at the end, whatever was broken on the way: the checks of every scenario.

Each returns the faults it has found, as sentences with the ids in them; none means that all is well.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import redis
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from models.database import Database
from models.queue import GROUP
from models.tables.batch_job import BatchJob
from models.tables.job import FINAL_STATUSES, Job, JobResult, JobStatus
from models.tables.project import JobCount

_SUCCEEDED = frozenset({JobStatus.SUCCEEDED})


def faults_of_jobs(
    database: Database, asked: Mapping[str, str], *, may_end: Collection[JobStatus] = _SUCCEEDED
) -> list[str]:
    """Check that these jobs, each with the text it was asked, have ended once and answer just that.

    An answer has to repeat the text, as those of `bench.marked_engine` do.
    """
    with database.reading() as session:
        jobs = {job.id: job for job in session.scalars(select(Job).where(Job.id.in_(asked)))}
        rows = session.scalars(select(JobResult).where(JobResult.job_id.in_(asked)))
        results = {row.job_id: row for row in rows}
    faults: list[str] = []
    for job_id, text in asked.items():
        job, result = jobs.get(job_id), results.get(job_id)
        if job is None:
            faults.append(f"{job_id} was accepted and is not there")
        elif job.status not in may_end:
            faults.append(f"{job_id} is {job.status} ({job.error_code})")
        else:
            faults += _faults_of_end(job, result, text)
    return faults


def faults_of_books(database: Database) -> list[str]:
    """Check the counters of all projects and batches against a fresh count."""
    with database.reading() as session:
        return [*_faults_of_projects(session), *_faults_of_batches(session)]


def faults_of_strangers(database: Database, asked: Collection[str]) -> list[str]:
    """Check that there is no job but these, and the retries of these."""
    with database.reading() as session:
        rows = session.execute(select(Job.id, Job.retry_of)).all()
    return [f"nobody asked for {row[0]}" for row in rows if row[0] not in asked and row[1] is None]


def faults_of_streams(client: redis.Redis, namespace: str) -> list[str]:
    """Check that no stream holds an entry, and no consumer has one pending."""
    faults: list[str] = []
    for stream in client.scan_iter(f"{{{namespace}:*}}:s:*", _type="stream"):
        length = client.xlen(stream)
        if length:
            faults.append(f"{stream} holds {length} entries")
        faults += [
            f"{stream} has {group['pending']} pending"
            for group in client.xinfo_groups(stream)
            if group["name"] == GROUP and group["pending"]
        ]
    return faults


def _faults_of_end(job: Job, result: JobResult | None, text: str) -> Iterator[str]:
    if job.status not in FINAL_STATUSES or job.finished_at is None or job.lease_until is not None:
        yield f"{job.id} is {job.status}, but its row does not look like one that has ended"
    if job.status == JobStatus.SUCCEEDED and (result is None or result.body is None):
        yield f"{job.id} succeeded and has no answer"
    if job.status == JobStatus.CANCELLED and result is not None:
        yield f"{job.id} was cancelled and has a result"
    for answer in answers_of(result.body) if result is not None and result.body is not None else ():
        if text not in answer:
            yield f"{job.id} was asked {text!r} and answered {answer!r}"


def answers_of(body: str) -> list[str]:
    """The texts of all choices in a stored response body."""
    choices: list[dict[str, Any]] = json.loads(body)["choices"]
    return [
        str(choice["message"]["content"] if "message" in choice else choice["text"]) for choice in choices
    ]


def _faults_of_projects(session: Session) -> Iterator[str]:
    key = (Job.project_id, Job.lane, Job.status)
    fresh = {
        (row[0], row[1], row[2]): row[3] for row in session.execute(select(*key, func.count()).group_by(*key))
    }
    kept = {(row.project_id, row.lane, row.status): row.num_jobs for row in session.scalars(select(JobCount))}
    for place in sorted(fresh.keys() | kept.keys()):
        if fresh.get(place, 0) != kept.get(place, 0):
            yield f"of {place} there are {fresh.get(place, 0)}, and {kept.get(place, 0)} are counted"


def _faults_of_batches(session: Session) -> Iterator[str]:
    replaced = select(Job.retry_of).where(Job.retry_of.is_not(None))
    newest = select(Job.batch_id, Job.status, func.count()).where(
        Job.batch_id.is_not(None), Job.id.not_in(replaced)
    )
    fresh: dict[str, dict[str, int]] = {}
    for batch_id, status, number in session.execute(newest.group_by(Job.batch_id, Job.status)):
        fresh.setdefault(str(batch_id), {})[status] = number
    for batch in session.scalars(select(BatchJob)):
        kept = {status: getattr(batch, status) for status in JobStatus if getattr(batch, status)}
        if kept != fresh.get(batch.id, {}):
            yield f"{batch.id} has {fresh.get(batch.id, {})}, and {kept} is counted"
