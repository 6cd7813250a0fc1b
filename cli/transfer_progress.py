"""The progress of bytes that go up or come down: a bar on a terminal, nothing elsewhere."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, Protocol, cast


class Transfer(Protocol):
    """Is told how far a transfer is, in bytes; a total of None is not known yet."""

    def __call__(self, num_bytes: int, total: int | None) -> None: ...


@contextmanager
def transfer(description: str) -> Iterator[Transfer]:
    """Show a transfer on stderr while the `with` block lasts, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda num_bytes, total: None
        return
    # Imported here because rich takes its time, which the other commands need not pay.
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(TextColumn("{task.description}"), *columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(description, total=None)
        yield lambda num_bytes, total: progress.update(task, completed=num_bytes, total=total)


class WatchedFile(io.RawIOBase):
    """A file that tells how far it was read."""

    def __init__(self, file: BinaryIO, watch: Callable[[int], None]) -> None:
        super().__init__()
        self._file = file
        self._watch = watch

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._file.fileno()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def read(self, size: int = -1) -> bytes:
        found = self._file.read(size)
        self._watch(self._file.tell())
        return found

    @classmethod
    def of(cls, file: BinaryIO, watch: Callable[[int], None]) -> BinaryIO:
        """Watch a file while it is read."""
        return cast(BinaryIO, cls(file, watch))
