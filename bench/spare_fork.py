"""A process that lives on in the next fork when one dies."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: PR_SET_PDEATHSIG of <linux/prctl.h>: the signal a process gets when its parent is gone.
_SET_PARENT_DEATH_SIGNAL = 1

_libc = ctypes.CDLL(None)


class SpareFork:
    """Forks one life after the other off this process, which has no threads and no connections.

    A life that a signal ends leaves a line with its number in the file `deaths`, and is followed by another;
    one that ends by itself is the last. SIGTERM is passed on to the life, and there is none after it. A life
    does not survive this process.
    """

    def __init__(self, live: Callable[[], int], deaths: Path | None = None) -> None:
        self._live = live
        self._deaths = deaths
        self._life: int | None = None
        self._is_stopping = False

    def run(self) -> int:
        """Live until a life ends by itself or SIGTERM came, and return the exit code of the last one."""
        signal.signal(signal.SIGTERM, self._stop)
        code = -signal.SIGTERM
        while (life := self._begin()) is not None:
            code = os.waitstatus_to_exitcode(os.waitpid(life, 0)[1])
            if code >= 0:
                return code
            if self._deaths is not None:
                with self._deaths.open("a") as lines:
                    lines.write(f"{-code}\n")
        return 128 - code

    def _begin(self) -> int | None:
        """Fork a life and return its id; None where there shall be no more."""
        ours = os.getpid()
        with _sigterm_waits():
            if self._is_stopping:
                return None
            self._life = os.fork()
            if self._life:
                return self._life
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        # The parent may have died before it could be told of.
        os._exit(self._live() if os.getppid() == ours else 1)

    def _stop(self, number: int, _: object) -> None:
        self._is_stopping = True
        if self._life is not None:
            with suppress(ProcessLookupError):
                os.kill(self._life, number)


@contextmanager
def _sigterm_waits() -> Iterator[None]:
    """Let no life begin that SIGTERM would pass by."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
