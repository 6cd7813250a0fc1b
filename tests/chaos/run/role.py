"""One process of the installation: started, started again whenever it ends, and struck."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.cli.process import REPOSITORY

#: Pause before a process that ended by itself is started again: what it needs may be away.
_PAUSE_SECONDS = 0.5
_STOP_SECONDS = 40.0


@dataclass(slots=True)
class Life:
    """One run of the program, between two deaths. Times are seconds since 1970."""

    pid: int
    began_at: float = field(default_factory=time.time)
    ended_at: float | None = None


class Role:
    """A program that always runs. With `is_forked`, its lives are children of the process that is started."""

    def __init__(
        self, name: str, module: str, *, folder: Path, environment: Mapping[str, str], is_forked: bool = False
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self.lives: list[Life] = []
        #: Exit codes of those that ended by themselves; a signal counts below zero.
        self.endings: list[int] = []
        self._command = [sys.executable, "-m", module]
        self._environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), **environment}
        self._folder = folder
        self._is_forked = is_forked
        self._start_at = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def life(self) -> Life | None:
        """What runs now, as it was last seen."""
        return self.lives[-1] if self.lives and self.lives[-1].ended_at is None else None

    def look(self) -> None:
        """Note who has died and who lives; start the program again where it has ended."""
        if self._process is None:
            if time.monotonic() >= self._start_at:
                self._start()
        elif self._process.poll() is not None:
            self._note(None)
            self.endings.append(self._process.returncode)
            pause = 0.0 if self._process.returncode < 0 else _PAUSE_SECONDS
            self._start_at, self._process = time.monotonic() + pause, None
        else:
            self._note(_only_child(self._process.pid) if self._is_forked else self._process.pid)

    def strike(self, number: signal.Signals, *, whole: bool = False) -> int | None:
        """Send a signal to the life, or to it and its children as if at one moment; return its pid."""
        life = self.life
        if life is None:
            return None
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(life.pid)
            members = [root, *(root.children(recursive=True) if whole else ())]
            if whole:
                # None of them shall see the end of another and act upon it.
                _send(members, signal.SIGSTOP)
            _send(members, number)
            return life.pid
        return None

    def strike_child(self, number: signal.Signals, word: str) -> int | None:
        """Send a signal to a child of the life whose command line has a word; return the life's pid."""
        life = self.life
        if life is None:
            return None
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(life.pid).children():
                if any(word in part for part in child.cmdline()):
                    child.send_signal(number)
                    return life.pid
        return None

    def stop(self) -> bool:
        """End it for good with SIGTERM; False if that took too long, and SIGKILL ended it."""
        process = self._process
        if process is None:
            return True
        members: list[psutil.Process] = []
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(process.pid)
            members = [root, *root.children(recursive=True)]
        _send(members, signal.SIGCONT)
        process.terminate()
        _, alive = psutil.wait_procs(members, timeout=_STOP_SECONDS)
        _send(alive, signal.SIGKILL)
        process.wait()
        self._process = None
        return not alive

    def _start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C is for the harness, which then stops everything in order.
                start_new_session=True,
            )

    def _note(self, pid: int | None) -> None:
        life = self.life
        if life is not None and life.pid != pid:
            life.ended_at = time.time()
        if pid is not None and (life is None or life.pid != pid):
            self.lives.append(Life(pid))


def _only_child(pid: int) -> int | None:
    # Asked many times a second: psutil would look through all processes of the machine.
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return None
    return int(children[0]) if children else None


def _send(processes: list[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)
