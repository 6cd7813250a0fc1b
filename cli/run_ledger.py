"""What a run has accepted and answered so far, in its own database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

from cli.answer_file import stored_lines
from cli.run_folder import RunFolder
from models.accept import Acceptance, Submission
from models.batch_store import BatchLine, BatchStore
from models.database import Database
from models.errors import IdempotencyMismatch, StartupError
from models.keys import default_project
from models.migrate import migrate
from models.queue import JobQueue
from models.settings import Settings
from models.tables.batch_job import BatchJob
from models.validation import JobDraft

#: Under this key the input is accepted, so that a start killed right after it accepts nothing twice.
_IDEMPOTENCY_KEY = "run"


class RunLedger:
    """The one batch of a run. Close it before the folder is removed."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self.database = Database(folder.database_url)
        migrate(self.database)
        with self.database.transaction() as session:
            self._project_id = default_project(session)
        self._store = BatchStore(self.database)

    def accept(self, drafts: Sequence[JobDraft], settings: Settings, *, redis_url: str) -> BatchJob:
        """Store the jobs, unless an earlier start did, and return their batch."""
        if self._folder.batch_id is None:
            submission = Submission(self._project_id, drafts, as_batch=True, idempotency_key=_IDEMPOTENCY_KEY)
            with closing(JobQueue(redis_url, settings.redis_namespace)) as queue:
                acceptance = Acceptance(self.database, queue, dispatch_depth=settings.dispatch_depth)
                self._folder.remember_batch(self._accept(acceptance, submission))
        return self.batch()

    def batch(self) -> BatchJob:
        """The batch with its newest counters."""
        if self._folder.batch_id is None:
            raise LookupError("nothing was accepted yet")
        return self._store.find(self._project_id, self._folder.batch_id)

    @property
    def is_complete(self) -> bool:
        """Whether every accepted job has ended; False before they were accepted."""
        return self._folder.batch_id is not None and is_complete(self.batch())

    @property
    def has_results(self) -> bool:
        """Whether any job has ended, so that there is something to lose."""
        return self._folder.batch_id is not None and self.batch().num_finished > 0

    def lines(self) -> Iterator[BatchLine]:
        """Yield the jobs with their results in input order; none where nothing was accepted."""
        if self._folder.batch_id is None:
            return iter(())
        return stored_lines(self._store, self._project_id, self._folder.batch_id)

    def close(self) -> None:
        self.database.close()

    def _accept(self, acceptance: Acceptance, submission: Submission) -> str:
        try:
            return acceptance.accept(submission)
        except IdempotencyMismatch as error:
            raise StartupError(
                f"{self._folder.path} was begun by another version of Headrace; "
                "remove that folder to start over"
            ) from error


def is_complete(batch: BatchJob) -> bool:
    """Whether every job of a batch has ended."""
    return batch.num_finished == batch.total
