"""Accept: from valid requests to jobs that are never lost."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

import structlog
from sqlalchemy import exists, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from models.database import Database, now
from models.errors import QueueUnavailable
from models.failpoints import failpoint
from models.idempotency import find_known, remember
from models.ids import new_id
from models.new_job import NewJob, store_new_jobs
from models.queue import JobQueue, Ticket
from models.strict_json import dump_json
from models.tables.batch_job import BatchJob, BatchStatus
from models.tables.job import IS_NOT_HELD, Job, JobStatus, Lane
from models.validation import JobDraft

_log = structlog.get_logger()

_Stream = tuple[str, Lane]


@dataclass(frozen=True, slots=True)
class Submission:
    """Requests handed in together: one job, or the lines of a batch."""

    project_id: str
    drafts: Sequence[JobDraft]
    as_batch: bool
    metadata: Mapping[str, str] | None = None
    idempotency_key: str | None = None

    @property
    def fingerprint(self) -> str:
        """SHA-256 of all that makes this request this request."""
        digest = hashlib.sha256(_canonical([self.as_batch, self.metadata]))
        for draft in self.drafts:
            # A deadline given in seconds moves between two tries of the same request, so it stays out.
            parts = [draft.endpoint, draft.lane, draft.body, draft.custom_id, draft.metadata]
            digest.update(_canonical(parts))
        return digest.hexdigest()


class Acceptance:
    """Stores submissions and passes their ids on to the queue."""

    def __init__(self, database: Database, queue: JobQueue, *, dispatch_depth: int) -> None:
        self._database = database
        self._queue = queue
        self._dispatch_depth = dispatch_depth

    def accept(self, submission: Submission) -> str:
        """Store the jobs in one transaction and return the id of the job, or of their batch.

        Once this returns nothing of it can be lost: a job whose id does not reach Redis now is
        dispatched later. Under an Idempotency-Key that was used before, the first resource's id is
        returned and nothing is stored. Raises IdempotencyMismatch, DatabaseUnavailable.
        """
        try:
            return self._accept(submission)
        except IntegrityError:
            # Two requests with the same key at the same moment: the other one won, and is visible now.
            return self._accept(submission)

    def _accept(self, submission: Submission) -> str:
        free = self._free_shares(submission)
        with self._database.transaction() as session:
            known = _find_known(session, submission)
            if known is not None:
                return known
            resource_id, jobs = _store(session, submission, free)
            failpoint("accept_before_commit")
        failpoint("accept_after_commit")
        self._append(jobs)
        failpoint("accept_after_xadd")
        return resource_id

    def _free_shares(self, submission: Submission) -> dict[_Stream, int]:
        """Say how many entries each stream can still take; none while Redis is away or came back empty."""
        free: dict[_Stream, int] = {}
        for model, lane in {(draft.model, draft.lane) for draft in submission.drafts}:
            try:
                if self._queue.has_epoch(model):
                    free[model, lane] = max(0, self._dispatch_depth - self._queue.depth(model, lane))
            except QueueUnavailable as error:
                _log.warning("accepted_without_queue", error=error.message)
                return {}
        return free

    def _append(self, jobs: Sequence[Job]) -> None:
        streams: dict[_Stream, list[Ticket]] = {}
        for job in jobs:
            if job.dispatched_at is not None:
                streams.setdefault((job.model, Lane(job.lane)), []).append(Ticket.of(job))
        try:
            for (model, lane), tickets in streams.items():
                self._queue.append(model, lane, tickets)
        except QueueUnavailable as error:
            # The rows say "dispatched" and have no entry: the reconciliation finds just those.
            _log.warning("append_failed", error=error.message, num_jobs=len(jobs))


def _canonical(value: Any) -> bytes:
    # The order of an object's keys says nothing.
    return json.dumps(value, sort_keys=True, allow_nan=False).encode()


def _find_known(session: Session, submission: Submission) -> str | None:
    key = submission.idempotency_key
    if key is None:
        return None
    return find_known(session, submission.project_id, key, submission.fingerprint)


def _store(session: Session, submission: Submission, free: Mapping[_Stream, int]) -> tuple[str, list[Job]]:
    at = now(session)
    batch = _new_batch(submission, at) if submission.as_batch else None
    if batch is not None:
        session.add(batch)
        session.flush()
    batch_id = batch.id if batch is not None else None
    new = [NewJob.of(draft, submission.project_id, at, batch_id=batch_id) for draft in submission.drafts]
    jobs = [one.job for one in new]
    _mark_dispatched(session, jobs, free, at)
    resource_id = batch_id or jobs[0].id
    if submission.idempotency_key is not None:
        remember(
            session,
            submission.project_id,
            submission.idempotency_key,
            fingerprint=submission.fingerprint,
            resource_id=resource_id,
            at=at,
        )
    store_new_jobs(session, new)
    return resource_id, jobs


def _new_batch(submission: Submission, at: datetime) -> BatchJob:
    return BatchJob(
        id=new_id("batch"),
        project_id=submission.project_id,
        status=BatchStatus.IN_PROGRESS,
        total=len(submission.drafts),
        queued=len(submission.drafts),
        cost_tokens=sum(draft.cost_tokens for draft in submission.drafts),
        metadata_text=dump_json(submission.metadata) if submission.metadata is not None else None,
        created_at=at,
    )


def _mark_dispatched(
    session: Session, jobs: Sequence[Job], free: Mapping[_Stream, int], at: datetime
) -> None:
    """Give a stream's free share to these jobs, unless older jobs wait for it already."""
    for (model, lane), share in free.items():
        waiting = exists().where(
            Job.model == model,
            Job.lane == lane,
            Job.status == JobStatus.QUEUED,
            Job.dispatched_at.is_(None),
            IS_NOT_HELD,
            Job.isolation == 0,
            Job.available_at <= at,
        )
        if session.scalar(select(waiting)):
            continue
        mine = (job for job in jobs if (job.model, job.lane) == (model, lane))
        for job in islice(mine, share):
            job.dispatched_at = job.created_at
