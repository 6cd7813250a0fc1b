"""A server as a child process: started, waited for, stopped by its own id."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_START_SECONDS = 120.0
_STOP_SECONDS = 60.0
_LOOK_AGAIN_SECONDS = 0.02


class ServerProcess:
    """One running server. Its output goes to a file, which is quoted if it does not start."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        user: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=log.parent,
                env={**os.environ, **(environment or {})},
                user=user,
                group=user,
                extra_groups=None if user is None else [],
                # Ctrl-C is for pytest, which then stops its servers in order.
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """Return when the server is ready; RuntimeError with its log when it ends or takes too long."""
        give_up_at = time.monotonic() + _START_SECONDS
        while not ready():
            try:
                # Waits for the end of the process, which is the one thing there is an event for.
                self._process.wait(_LOOK_AGAIN_SECONDS)
            except subprocess.TimeoutExpired:
                if time.monotonic() < give_up_at:
                    continue
            self.stop()
            raise RuntimeError(f"the server did not start: {self._log.read_text(errors='replace')}")

    def quit(self) -> None:
        """SIGQUIT, and wait for the end."""
        self._process.send_signal(signal.SIGQUIT)
        self._await_end()

    def stop(self, *, kill: bool = False) -> None:
        """End the server, at once or in an orderly way, and wait for its end; again is harmless."""
        if kill:
            self._process.kill()
        else:
            self._process.terminate()
        self._await_end()

    def _await_end(self) -> None:
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
