"""Only one Headrace at a time works in a data folder."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from models.errors import StartupError

#: Seconds between two tries for the lock; the kernel offers no wait with a time limit.
RETRY_SECONDS = 0.05

#: How long a Valkey whose Headrace was killed may take to end.
WAIT_SECONDS = 5.0


class InstanceLock:
    """A lock on a data folder, made with mode 0700 if it is missing.

    The kernel frees the lock when the last process holding `fileno()` is gone. Handing that number to Valkey
    keeps the folder locked while a Valkey whose Headrace was killed is still writing to it. `acquire`
    therefore waits up to `wait_seconds` (default: `WAIT_SECONDS`) before it raises StartupError. `flag` is
    what the user chooses the folder by.
    """

    def __init__(self, folder: Path, *, wait_seconds: float | None = None, flag: str = "--data-dir") -> None:
        self.folder = folder.absolute()
        self._wait_seconds = WAIT_SECONDS if wait_seconds is None else wait_seconds
        self._flag = flag
        self._fd: int | None = None

    def acquire(self) -> None:
        """Take the lock, or raise StartupError naming who holds it."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StartupError(
                f"data folder {self.folder} cannot be used ({error.strerror}); "
                f"choose another with {self._flag}"
            ) from error
        try:
            self._wait_for(fd)
        except BaseException:
            os.close(fd)
            raise
        os.ftruncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)
        self._fd = fd

    def _wait_for(self, fd: int) -> None:
        give_up_at = time.monotonic() + self._wait_seconds
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= give_up_at:
                    raise StartupError(self._in_use_message(fd)) from None
            except OSError as error:
                raise StartupError(
                    f"data folder {self.folder} cannot be locked ({error.strerror}); "
                    f"choose one on a local disk with {self._flag}"
                ) from error
            time.sleep(RETRY_SECONDS)

    def _in_use_message(self, fd: int) -> str:
        pid = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
        return (
            f"data folder {self.folder} is in use by another Headrace (pid {pid}); stop it, "
            f"or choose another with {self._flag}"
        )

    def fileno(self) -> int:
        """The open lock, to be inherited by a child that writes to the folder."""
        if self._fd is None:
            raise ValueError("the lock is not held; call acquire() first")
        return self._fd

    def release(self) -> None:
        """Let go. The folder stays locked as long as a child still has the lock open."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
