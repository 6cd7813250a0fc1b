"""What a child process writes: shown line by line, or kept in a log file.

Both kinds keep the last lines, so that a child that cannot start can say why.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

#: How many of a child's last lines are kept.
LAST_LINES = 20

#: Bytes after which a line without an end is passed on as it stands.
LONGEST_LINE_BYTES = 65_536

#: Bytes read back from the end of a log file to find the last lines.
TAIL_BYTES = 16_384


class ChildOutput(Protocol):
    """Where stdout and stderr of one life of a child go."""

    def fileno(self) -> int:
        """The open file that the child writes to."""

    def handed_over(self) -> None:
        """To be called once the child has the file: our copy is closed."""

    def finish(self, timeout_seconds: float) -> None:
        """To be called once the child is gone: waits until its last line has come through."""

    def last_lines(self) -> list[str]:
        """The last lines of this life, oldest first."""


class ShownOutput:
    """Passes every line on with the child's name before it."""

    def __init__(self, name: str, show: Callable[[str], None]) -> None:
        self._name = name
        self._show = show
        self._last: deque[str] = deque(maxlen=LAST_LINES)
        self._read_fd, self._write_fd = os.pipe()
        self._reader = threading.Thread(target=self._read, name=f"{name}-output", daemon=True)

    def fileno(self) -> int:
        return self._write_fd

    def handed_over(self) -> None:
        os.close(self._write_fd)
        self._reader.start()

    def finish(self, timeout_seconds: float) -> None:
        self._reader.join(timeout_seconds)

    def last_lines(self) -> list[str]:
        return list(self._last)

    def _read(self) -> None:
        with os.fdopen(self._read_fd, "rb") as stream:
            while line := stream.readline(LONGEST_LINE_BYTES):
                text = line.decode(errors="replace").rstrip("\r\n")
                self._last.append(text)
                # A terminal that went away must not stop the reading: the child would block on a full pipe.
                with contextlib.suppress(OSError, ValueError):
                    self._show(f"{self._name} | {text}")


class LoggedOutput:
    """Appends to a file that the child itself holds: nothing is lost when the supervisor is killed."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._start_bytes = os.fstat(self._fd).st_size

    def fileno(self) -> int:
        return self._fd

    def handed_over(self) -> None:
        os.close(self._fd)

    def finish(self, timeout_seconds: float) -> None:
        """Nothing to wait for: the child wrote the file itself."""

    def last_lines(self) -> list[str]:
        with self._path.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(self._start_bytes, size - TAIL_BYTES))
            lines = stream.read().decode(errors="replace").splitlines()
        return lines[-LAST_LINES:]
