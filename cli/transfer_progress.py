"""The progress of bytes that go up or come down: a bar on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


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
