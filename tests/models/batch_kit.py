"""Batches from files on their way to jobs, in short words for tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import select

from models.batch_split import BatchSplit
from models.batch_validation import BatchValidation
from models.batch_work import BatchWork, WorkLease
from models.blob_store import BlobStore
from models.database import Database, now
from models.file_store import Blob, FileStore
from models.settings import Settings
from models.tables.batch_job import BatchJob
from models.tables.file import FilePurpose, StoredFile
from models.tables.job import Job, JobRequest, JobResult
from tests.models.batch_rows import add_batch
from tests.models.pipeline import MODEL


def request(custom_id: str, **body: Any) -> dict[str, Any]:
    """A completion request as a line of a file holds it."""
    plain = {"model": MODEL, "prompt": "hello", "max_tokens": 4}
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/completions", "body": {**plain, **body}}


def requests(count: int) -> list[dict[str, Any]]:
    return [request(f"id-{line}", prompt=f"prompt {line}") for line in range(count)]


def content_of(lines: Sequence[object]) -> bytes:
    """A file of these lines: text as it stands, everything else as JSON."""
    texts = [line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines]
    return "".join(f"{text}\n" for text in texts).encode()


class BatchKit:
    """Files, batches that ask for them, and those who work on them."""

    def __init__(self, database: Database, folder: Path, settings: Settings, project_id: str) -> None:
        self.database = database
        self.settings = settings
        self.project_id = project_id
        self.files = FileStore(database, BlobStore(str(folder)))
        self.work = BatchWork(database)

    def store(self, content: bytes) -> StoredFile:
        with self.files.writer() as blob:
            blob.write(content)
        return self.files.add(
            self.project_id,
            purpose=FilePurpose.BATCH,
            filename="in.jsonl",
            parts=[Blob.of(blob)],
            expires_after_seconds=None,
            num_lines=blob.num_lines,
        )

    def submit(self, lines: Sequence[object] | bytes, **values: Any) -> str:
        """Store a file and a batch that was just created for it."""
        content = lines if isinstance(lines, bytes) else content_of(lines)
        given = {"model": None, "input_file_id": self.store(content).id, **values}
        return add_batch(self.database, self.project_id, **given)

    def change_file(self, batch_id: str, **values: Any) -> None:
        """Write into the row of a batch's file, past all rules."""
        with self.database.transaction() as session:
            file = session.get_one(StoredFile, self.batch(batch_id).input_file_id)
            for name, value in values.items():
                setattr(file, name, value)

    def lose(self, batch_id: str) -> None:
        """Let a batch's file be gone."""
        with self.database.reading() as session:
            self.change_file(batch_id, deleted_at=now(session))

    def claim(self) -> WorkLease:
        lease = self.work.claim()
        assert lease is not None
        return lease

    def validation(self, *, should_stop: Callable[[], bool] = lambda: False) -> BatchValidation:
        return BatchValidation(self.work, self.files, self.settings, should_stop=should_stop)

    def validate(self) -> None:
        """Validate the batch that waits for it."""
        lease = self.claim()
        self.validation().validate(lease)
        self.work.release(lease)

    def splitter(self, *, chunk_lines: int = 1000) -> BatchSplit:
        return BatchSplit(self.work, self.files, self.settings, chunk_lines=chunk_lines)

    def split(self, *, chunk_lines: int = 1000) -> None:
        """Split the batch that waits for it to its end."""
        lease = self.claim()
        splitter = self.splitter(chunk_lines=chunk_lines)
        while self.batch(lease.batch_id).split_line is not None:
            splitter.split_chunk(lease)
        self.work.release(lease)

    def batch(self, batch_id: str) -> BatchJob:
        with self.database.reading() as session:
            return session.get_one(BatchJob, batch_id)

    def errors(self, batch_id: str) -> list[tuple[str, int | None, str | None]]:
        """Code, line and param of all that was wrong with the file."""
        found = json.loads(self.batch(batch_id).errors_text or "[]")
        return [(error["code"], error["line"], error["param"]) for error in found]

    def jobs(self, batch_id: str) -> list[Job]:
        """Its jobs in the order of the lines."""
        with self.database.reading() as session:
            statement = select(Job).where(Job.batch_id == batch_id).order_by(Job.line, Job.revision)
            return list(session.scalars(statement))

    def texts(self, job: Job) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """A job's body and error."""
        with self.database.reading() as session:
            result = session.get(JobResult, job.id)
            error = json.loads(result.error) if result is not None and result.error is not None else None
            return json.loads(session.get_one(JobRequest, job.id).body), error
