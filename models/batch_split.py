"""The second pass over a batch's file: a job for every line, chunk by chunk."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice

import structlog

from models.batch_input import BatchInput, InputLost
from models.batch_line import BadLine, LineReader
from models.batch_state import conform, settle
from models.batch_work import BatchWork, WorkLease
from models.database import UNWRITABLE, now
from models.errors import Fault
from models.failpoints import failpoint
from models.file_store import FileStore
from models.new_job import NewJob, store_new_jobs
from models.prefix_key import PrefixKeys
from models.settings import Settings
from models.tables.batch_job import BatchJob
from models.tables.job import Job, JobStatus
from models.validation import JobDraft

_log = structlog.get_logger()

#: A chunk ends with the line that reaches one of these. SQLite has one writer: others wait meanwhile.
_CHUNK_LINES = 500
_CHUNK_BYTES = 8 * 2**20

#: Batches whose beginnings of lines are remembered from one chunk to the next.
_MAX_REMEMBERED = 4

_MISSING = Fault("internal_error", "The input file ended before this line.")
_NOT_STORED = Fault("internal_error", "The request could not be stored.")


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Lines that come one after the other; each begins at its offset, and the next one at the last offset."""

    lines: list[JobDraft | BadLine]
    offsets: list[int]

    def halved(self) -> _Chunk:
        half = len(self.lines) // 2
        return _Chunk(self.lines[:half], self.offsets[: half + 1])


class BatchSplit:
    """Makes jobs of lines. Threads may share it."""

    def __init__(
        self, work: BatchWork, files: FileStore, settings: Settings, *, chunk_lines: int = _CHUNK_LINES
    ) -> None:
        self._work = work
        self._input = BatchInput(files, max_line_bytes=settings.max_body_bytes)
        self._settings = settings
        self._chunk_lines = chunk_lines
        self._lock = threading.Lock()
        self._prefix_keys: OrderedDict[str, PrefixKeys] = OrderedDict()

    def split_chunk(self, lease: WorkLease) -> None:
        """Make jobs of the next lines, in the state in which their batch wants them.

        A faulty line becomes a job that has failed, and so does one that is not there any more: each line has
        its job. Raises WorkLost, FileStorageUnavailable, DatabaseUnavailable: then nothing has changed.
        """
        with self._work.database.reading() as session:
            batch = session.get_one(BatchJob, lease.batch_id)
        if batch.split_line is None:
            return
        chunk = self._read(batch, batch.split_line, batch.split_offset or 0)
        while True:
            try:
                self._store(lease, batch.split_line, chunk)
                return
            except UNWRITABLE as error:
                # Narrowed down to one line, which then is not to blame for the others.
                if len(chunk.lines) > 1:
                    chunk = chunk.halved()
                    continue
                line = chunk.lines[0]
                if isinstance(line, BadLine) and line.faults == (_NOT_STORED,):
                    raise
                _log.error("line_not_stored", batch_id=batch.id, line=batch.split_line, error=f"{error}")
                chunk = _Chunk([BadLine(batch.split_line, None, (_NOT_STORED,))], chunk.offsets)

    def _read(self, batch: BatchJob, first: int, offset: int) -> _Chunk:
        """Read up to a chunk of lines; no transaction is open meanwhile."""
        reader = LineReader(self._settings, endpoint=batch.endpoint, model=batch.model)
        most = min(self._chunk_lines, batch.total - first)
        lines: list[JobDraft | BadLine] = []
        offsets = [offset]
        num_bytes = 0
        fault = _MISSING
        try:
            for begin, raw in self._input.lines(batch, offset=offset):
                offsets[-1] = begin
                if len(lines) == most or num_bytes >= _CHUNK_BYTES:
                    return _Chunk(lines, offsets)
                lines.append(reader.read(first + len(lines), raw))
                num_bytes += len(raw)
                offsets.append(begin + len(raw))
        except InputLost as lost:
            fault = lost.fault
        if len(lines) < most:
            _log.error("batch_lines_lost", batch_id=batch.id, line=first + len(lines), code=fault.code)
        while len(lines) < most:
            lines.append(BadLine(first + len(lines), None, (fault,)))
            offsets.append(offsets[-1])
        return _Chunk(lines, offsets)

    def _store(self, lease: WorkLease, first: int, chunk: _Chunk) -> None:
        keys = self._keys(lease.batch_id)
        with self._work.database.transaction() as session:
            # Before its jobs: they are new, so nobody can hold one of them and wait for the batch.
            batch = self._work.locked(session, lease)
            at = now(session)
            new = [_new_job(line, batch, keys, at) for line in chunk.lines]
            store_new_jobs(session, new)
            for one in new:
                batch.count(JobStatus(one.job.status), 1)
                batch.cost_tokens += one.job.cost_tokens
            is_last = first + len(new) >= batch.total
            batch.split_line = None if is_last else first + len(new)
            batch.split_offset = None if is_last else chunk.offsets[-1]
            settle(batch, at)
            failpoint("split_before_commit")
        failpoint("split_after_commit")

    def _keys(self, batch_id: str) -> PrefixKeys:
        with self._lock:
            keys = self._prefix_keys.pop(batch_id, None) or PrefixKeys()
            self._prefix_keys[batch_id] = keys
            for old in list(islice(self._prefix_keys, max(0, len(self._prefix_keys) - _MAX_REMEMBERED))):
                del self._prefix_keys[old]
            return keys


def _new_job(line: JobDraft | BadLine, batch: BatchJob, keys: PrefixKeys, at: datetime) -> NewJob:
    draft = line if isinstance(line, JobDraft) else _draft_of(line, batch)
    new = NewJob.of(draft, batch.project_id, at, batch_id=batch.id)
    job = new.job
    conform(job, batch)
    if draft.prefix is not None and draft.line is not None:
        job.prefix_key = keys.of(draft.prefix, draft.line)
    if isinstance(line, BadLine):
        _end(job, JobStatus.FAILED, line.error.code, at)
        return replace(new, error=line.error)
    if batch.cancelling_at is not None:
        _end(job, JobStatus.CANCELLED, "cancelled", at)
    elif batch.expires_at is not None and batch.expires_at <= at:
        _end(job, JobStatus.EXPIRED, "deadline_exceeded", at)
    return new


def _draft_of(bad: BadLine, batch: BatchJob) -> JobDraft:
    return JobDraft(
        endpoint=batch.endpoint or "",
        model=batch.model or "",
        body=bad.body or {},
        cost_tokens=0,
        custom_id=bad.custom_id,
        line=bad.line,
    )


def _end(job: Job, status: JobStatus, error_code: str, at: datetime) -> None:
    job.status, job.error_code, job.finished_at = status, error_code, at
