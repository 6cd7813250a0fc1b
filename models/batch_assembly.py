"""Assembly: the results of a batch become its output file and its error file, a chunk of lines at a time.

A chunk is written as one blob for each file before a transaction links it, so that a crash leaves at most a
blob that belongs to nothing (and is removed later), and never half a chunk, or one twice. Nobody sees the
files before both are whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import structlog
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from models.batch_record import batch_record
from models.batch_state import conclude
from models.batch_store import BatchStore
from models.batch_work import BatchWork, WorkLease
from models.blob_store import BlobWriter
from models.database import now
from models.errors import HeadraceError
from models.file_store import Blob, FileStore
from models.line_jobs import is_newest
from models.strict_json import dump_json
from models.tables.batch_job import BatchJob
from models.tables.file import StoredFile
from models.tables.job import FINAL_STATUSES, Job, JobStatus

_log = structlog.get_logger()

#: Lines of a chunk, and those whose results are in memory at once. A chunk that grows large ends before.
CHUNK = 2000
_PAGE = 100
_MAX_CHUNK_BYTES = 32 * 2**20


class ResultsMissing(HeadraceError):
    """Lines of a batch are no jobs, so that its files cannot be whole."""

    code = "results_missing"


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Lines that were written: the first, the one after the last if there are more, and their blobs."""

    first: int
    next: int | None
    output: Blob | None
    error: Blob | None


def assemble_chunk(work: BatchWork, lease: WorkLease, files: FileStore, *, chunk: int = CHUNK) -> None:
    """Write the next lines of a batch into its files; after the last of them the batch is over.

    Raises WorkLost, and ResultsMissing where no files can be written that hold every line.
    """
    with work.database.reading() as session:
        batch = session.get_one(BatchJob, lease.batch_id)
    if batch.assembly_line is None:
        return
    written = _write(BatchStore(work.database), files, batch, chunk)
    with work.database.transaction() as session:
        batch = work.locked(session, lease)
        if batch.assembly_line == written.first:
            _link(session, files, batch, written)


class _Part:
    """The blob of one file's next lines, begun with the first of them."""

    def __init__(self, files: FileStore, opened: ExitStack) -> None:
        self._files = files
        self._opened = opened
        self._writer: BlobWriter | None = None

    def add(self, record: dict[str, Any]) -> int:
        """Write a record as a line, and return how long that is in bytes."""
        if self._writer is None:
            self._writer = self._opened.enter_context(self._files.writer())
        line = dump_json(record).encode() + b"\n"
        self._writer.write(line)
        return len(line)

    def blob(self) -> Blob | None:
        """What was written, once it is closed; None where there was no line."""
        return None if self._writer is None else Blob.of(self._writer)


def _write(store: BatchStore, files: FileStore, batch: BatchJob, limit: int) -> _Chunk:
    first = line = batch.assembly_line or 0
    num_lines = num_bytes = 0
    more = True
    with ExitStack() as opened:
        output, error = _Part(files, opened), _Part(files, opened)
        while more and num_lines < limit and num_bytes < _MAX_CHUNK_BYTES:
            page = min(_PAGE, limit - num_lines)
            found, more = store.lines(batch.project_id, batch.id, after=line - 1, limit=page)
            for one in found:
                part = output if one.job.status == JobStatus.SUCCEEDED else error
                num_bytes += part.add(batch_record(one))
                line = (one.job.line or 0) + 1
            num_lines += len(found)
    return _Chunk(first, line if more else None, output.blob(), error.blob())


def _link(session: Session, files: FileStore, batch: BatchJob, written: _Chunk) -> None:
    at = now(session)
    if written.output is not None:
        output = _file(session, files, batch, batch.assembly_output_id, kind="output", at=at)
        batch.assembly_output_id = output.id
        files.append_part(session, output, written.output)
    if written.error is not None:
        error = _file(session, files, batch, batch.assembly_error_id, kind="error", at=at)
        batch.assembly_error_id = error.id
        files.append_part(session, error, written.error)
    batch.assembly_line = written.next
    if written.next is None:
        _finish(session, files, batch, at)


def _file(
    session: Session, files: FileStore, batch: BatchJob, file_id: str | None, *, kind: str, at: datetime
) -> StoredFile:
    """Return the file that is being written, begun with its first line: one without lines there is not."""
    if file_id is not None:
        return session.get_one(StoredFile, file_id)
    version = batch.output_version + 1
    suffix = f"_v{version}" if version > 1 else ""
    return files.begin_output(session, batch.project_id, filename=f"{batch.id}_{kind}{suffix}.jsonl", at=at)


def _finish(session: Session, files: FileStore, batch: BatchJob, at: datetime) -> None:
    """Let everybody see both files, and the batch be over, if they hold what the batch has counted."""
    session.flush()
    ids = (batch.assembly_output_id, batch.assembly_error_id)
    output, error = (None if file_id is None else session.get_one(StoredFile, file_id) for file_id in ids)
    num_lines = [0 if file is None else file.num_lines for file in (output, error)]
    made = [file for file in (output, error) if file is not None]
    batch.assembly_output_id = batch.assembly_error_id = None
    if num_lines != [batch.succeeded, batch.total - batch.succeeded]:
        _log.error("results_differ_from_counts", batch_id=batch.id, num_lines=num_lines, total=batch.total)
        _begin_anew(session, files, batch, made, at)
        return
    for file in made:
        after = batch.output_expires_after_seconds
        expires_at = None if after is None else file.created_at + timedelta(seconds=after)
        files.finish_output(session, file, at=at, expires_at=expires_at)
    batch.output_file_id = None if output is None else output.id
    batch.error_file_id = None if error is None else error.id
    conclude(batch, at)


def _begin_anew(
    session: Session, files: FileStore, batch: BatchJob, made: Sequence[StoredFile], at: datetime
) -> None:
    """Count a batch's lines once more and write its files from the first one on."""
    counted = select(Job.status, func.count()).where(Job.batch_id == batch.id, is_newest())
    found = {row[0]: row[1] for row in session.execute(counted.group_by(Job.status))}
    if sum(found.values()) != batch.total or found.keys() - FINAL_STATUSES:
        raise ResultsMissing(f"The batch has {batch.total} lines, and its jobs are {found}.")
    for status in JobStatus:
        setattr(batch, status.value, found.get(status, 0))
    for file in made:
        files.drop(session, file, at)
    batch.assembly_line = 0
