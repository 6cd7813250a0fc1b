"""The first pass over a batch's file: every fault is found before any request is computed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import structlog

from models.batch_findings import BatchFindings, errors_text
from models.batch_input import BatchInput, InputLost
from models.batch_line import LineReader
from models.batch_state import end
from models.batch_work import BatchWork, WorkLease
from models.database import now
from models.errors import Fault
from models.file_store import FileStore
from models.fleet import Fleet
from models.seen_ids import SeenIds
from models.settings import Settings
from models.tables.batch_job import BatchJob, BatchStatus

_log = structlog.get_logger()

#: Lines between two looks at the batch, which renew the lease.
_LINES_PER_LOOK = 1000


class BatchValidation:
    """Validates files as streams: a file of any length takes the same memory.

    Once `should_stop` says so it leaves off, and whoever has the batch next begins anew.
    """

    def __init__(
        self,
        work: BatchWork,
        files: FileStore,
        settings: Settings,
        *,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._work = work
        self._input = BatchInput(files, max_line_bytes=settings.max_body_bytes)
        self._settings = settings
        self._should_stop = should_stop

    def validate(self, lease: WorkLease) -> None:
        """Read the whole file; then its lines become jobs, or the batch has failed and says all its faults.

        Raises WorkLost, for one that was cancelled meanwhile as well, FileStorageUnavailable, and
        DatabaseUnavailable: then nothing has changed.
        """
        batch = self._look(lease)
        if batch is None:
            return
        findings = BatchFindings(with_bodies=batch.validate_only)
        model: str | None = None
        try:
            reading = self._read(lease, batch, findings)
            if reading is None:
                return
            model = reading.model
            findings.check_size(self._settings.max_batch_requests)
        except InputLost as lost:
            findings = BatchFindings()
            findings.refuse(lost.fault)
        self._conclude(lease, findings, model or self._settings.served_name)

    def _read(self, lease: WorkLease, batch: BatchJob, findings: BatchFindings) -> LineReader | None:
        """Read all lines; None where the process shall stop."""
        with closing(SeenIds()) as seen:
            reader = LineReader(self._settings, seen=seen, endpoint=batch.endpoint)
            for line, (_, raw) in enumerate(self._input.lines(batch)):
                if line % _LINES_PER_LOOK == _LINES_PER_LOOK - 1 and self._look(lease) is None:
                    return None
                findings.add(reader.read(line, raw))
        return reader

    def _look(self, lease: WorkLease) -> BatchJob | None:
        """Renew the lease and return the batch; None where the process shall stop."""
        if self._should_stop():
            return None
        with self._work.database.transaction() as session:
            return self._work.locked(session, lease)

    def _conclude(self, lease: WorkLease, findings: BatchFindings, model: str) -> None:
        tokens_per_second = Fleet(self._work.database).tokens_per_second(model)
        with self._work.database.transaction() as session:
            batch = self._work.locked(session, lease)
            at = now(session)
            batch.errors_text = findings.errors_text()
            if batch.validate_only:
                batch.report_text = findings.report_text(tokens_per_second=tokens_per_second)
            if findings.is_fatal:
                end(batch, BatchStatus.FAILED, at)
            elif batch.validate_only:
                end(batch, BatchStatus.COMPLETED, at)
            else:
                batch.status, batch.in_progress_at = BatchStatus.IN_PROGRESS, at
                batch.total = findings.num_lines
                batch.model = model
                batch.split_line = batch.split_offset = 0
        _log.info(
            "batch_validated",
            batch_id=lease.batch_id,
            status=batch.status,
            num_lines=findings.num_lines,
            num_valid=findings.num_valid,
        )


def fail_unread(work: BatchWork, lease: WorkLease, fault: Fault) -> None:
    """Give up a batch whose file cannot be validated, whatever is tried. Raises WorkLost."""
    with work.database.transaction() as session:
        batch = work.locked(session, lease)
        batch.errors_text = errors_text([fault])
        end(batch, BatchStatus.FAILED, now(session))
