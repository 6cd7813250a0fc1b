"""The parts of a house: processes that are started, frozen, killed and waited for."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from tests.cli.process import REPOSITORY

_END_SECONDS = 120.0


class Part:
    """One process of a role."""

    def __init__(self, cradle: Cradle, pid: int, log: Path) -> None:
        self.pid = pid
        self._cradle = cradle
        self._log = log
        # By this handle it is known for good, whoever gets its number later.
        self._handle = os.pidfd_open(pid)
        self._exit_code: int | None = None

    @property
    def log(self) -> str:
        """What it has said."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def has_ended(self, *, within_seconds: float = 0.0) -> bool:
        """Whether it has ended, or does in time."""
        if self._exit_code is None and select.select([self._handle], [], [], within_seconds)[0]:
            self._exit_code = self._cradle.reap(self.pid)
        return self._exit_code is not None

    def wait(self) -> int:
        """Wait for its end and return the exit code, -9 after SIGKILL."""
        if not self.has_ended(within_seconds=_END_SECONDS) or self._exit_code is None:
            raise TimeoutError(f"process {self.pid} goes on: {self.log[-3000:]}")
        return self._exit_code

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> None:
        """SIGKILL for this process, not for its children, and wait for its end."""
        self.send(signal.SIGKILL)
        self.wait()

    def clear_away(self) -> None:
        """End it with all its children, if it still runs."""
        if not self.has_ended():
            # A part leads a group of its own, which is there as long as nobody has waited for its leader.
            os.killpg(self.pid, signal.SIGKILL)
            self.wait()


class Cradle:
    """The process of `tests.chaos.cradle`, and what comes out of it. May be used by several threads."""

    def __init__(self, folder: Path) -> None:
        self._lock = threading.Lock()
        self._errors = folder / "cradle.log"
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.cradle"],
                # Not in the checkout, where a `.env` may lie.
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_WAIT_POLICY": "passive"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                # Ctrl-C is for pytest: the cradle sees its stdin end, and ends all that came out of it.
                start_new_session=True,
            )

    def start(self, role: str, *, folder: Path, log: Path, environment: Mapping[str, str]) -> Part:
        """Start a role in a folder, with its output in a file and these variables beside ours."""
        inherited = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_WAIT_POLICY": "passive"}
        found = self._ask(
            start=role, folder=str(folder), log=str(log), environment={**inherited, **environment}
        )
        return Part(self, found["pid"], log)

    def reap(self, pid: int) -> int:
        """The exit code of a process that has ended."""
        return int(self._ask(reap=pid)["exit_code"])

    def close(self) -> None:
        """End it, and all that came out of it."""
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, **command: Any) -> dict[str, Any]:
        if self._process.stdin is None or self._process.stdout is None:
            raise ValueError("the cradle's streams are not piped")
        with self._lock:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the cradle has ended: {self._errors.read_text(errors='replace')}")
        found: dict[str, Any] = json.loads(line)
        return found
