"""The file that a batch was made of, as both passes read it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from models.database import now
from models.errors import Fault, FileNotFound, FileStorageUnavailable, HeadraceError
from models.file_store import FileStore, RawLine
from models.tables.batch_job import BatchJob

#: So long after its window a batch waits for a store of files that does not answer, or has lost the file.
_PATIENCE = timedelta(days=1)

_GONE = Fault("file_not_found", "The input file was deleted, or has expired, before it was read.")
_UNREACHABLE = Fault("file_storage_unavailable", "The store of files did not answer until after the window.")


class InputLost(HeadraceError):
    """The file of a batch cannot be read any more."""

    code = "input_lost"

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        super().__init__(fault.message)


class BatchInput:
    """Reads files of batches, in constant memory. A line above `max_line_bytes` is cut just above it."""

    def __init__(self, files: FileStore, *, max_line_bytes: int) -> None:
        self._files = files
        self._max_line_bytes = max_line_bytes

    def lines(self, batch: BatchJob, *, offset: int = 0) -> Iterator[RawLine]:
        """Give the lines from the one at `offset` on.

        Raises FileStorageUnavailable, and InputLost where it is no use to wait; both also in the middle.
        """
        try:
            file = self._files.find_input(batch.project_id, batch.input_file_id or "")
            yield from self._files.lines(file, offset=offset, max_bytes=self._max_line_bytes)
        except FileNotFound as error:
            raise InputLost(_GONE) from error
        except FileStorageUnavailable as error:
            if self._has_hope(batch):
                raise
            raise InputLost(_UNREACHABLE) from error

    def _has_hope(self, batch: BatchJob) -> bool:
        if batch.expires_at is None:
            return True
        with self._files.database.reading() as session:
            return now(session) < batch.expires_at + _PATIENCE
