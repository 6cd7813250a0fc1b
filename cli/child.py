"""One child process: how it is started, watched and ended."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cli.child_output import ChildOutput, LoggedOutput, ShownOutput
from models.errors import StartupError

#: Seconds given to the last lines of a child that is gone.
OUTPUT_SECONDS = 1.0

#: PR_SET_PDEATHSIG of <linux/prctl.h>: the signal a process gets when its parent is gone.
_SET_PARENT_DEATH_SIGNAL = 1

# Looked up here because between fork and exec nothing may be imported or loaded.
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """What to start, how to see that it is ready, and how long to be patient.

    `ready` is asked about every 50 ms, with the child's pid, while it starts, and must answer at once.
    Without it, a child is ready once it has lived for the supervisor's `settle_seconds`. `env` None means
    the supervisor's own.
    With a `log_path`, output goes there; without, it is shown with the child's name before each line.
    `on_start_failure` is told the last lines of a child that died before it was ready, so that it can mend
    what is broken before the next try.
    """

    name: str
    argv: Sequence[str]
    env: Mapping[str, str] | None = None
    ready: Callable[[int], bool] | None = None
    start_timeout_seconds: float = 60.0
    stop_timeout_seconds: float = 30.0
    stdin: bytes = b""
    pass_fds: tuple[int, ...] = ()
    log_path: Path | None = None
    on_start_failure: Callable[[Sequence[str]], None] | None = None


class Child:
    """A running child, in a session of its own so that Ctrl-C in the terminal reaches only the supervisor.

    It gets SIGTERM when the *thread* that made it ends (Linux counts threads here, not processes), so that
    a supervisor killed with SIGKILL leaves no orphan: make children in the thread that lives longest.
    `on_exit` is called from another thread once the child and all of its process group are gone.
    """

    def __init__(self, spec: ChildSpec, *, show: Callable[[str], None], on_exit: Callable[[], None]) -> None:
        self.spec = spec
        self._on_exit = on_exit
        self._exited = threading.Event()
        self._reaping = threading.Lock()
        self._reaped = False
        self._output = _open_output(spec, show)
        self._process = _spawn(spec, self._output)
        self.pid = self._process.pid
        self._give_stdin()
        threading.Thread(target=self._watch, name=f"{spec.name}-exit", daemon=True).start()

    @property
    def exit_code(self) -> int | None:
        """None while it runs; minus the signal's number when a signal ended it."""
        return self._process.returncode if self._exited.is_set() else None

    def last_lines(self) -> list[str]:
        """What it said last, oldest first."""
        return self._output.last_lines()

    def terminate(self) -> None:
        """Ask it to end."""
        with self._reaping:
            if not self._reaped:
                os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """End it and everything it started."""
        with self._reaping:
            if not self._reaped:
                os.killpg(self.pid, signal.SIGKILL)

    def stop(self) -> None:
        """Ask it to end, and end it by force after its `stop_timeout_seconds`. Returns when it is gone."""
        self.terminate()
        if not self._exited.wait(self.spec.stop_timeout_seconds):
            self.kill()
            self._exited.wait()

    def _give_stdin(self) -> None:
        if self._process.stdin is None:
            return
        # A child that died at once is reported by its exit, not here.
        with contextlib.suppress(BrokenPipeError), self._process.stdin as stdin:
            stdin.write(self.spec.stdin)

    def _watch(self) -> None:
        # There is nobody to wait for when whoever started us left SIGCHLD ignored.
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with self._reaping:
            # Not reaped yet, so the number is still ours. What it left behind would hold ports and files.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
            self._reaped = True
        self._output.finish(OUTPUT_SECONDS)
        self._exited.set()
        self._on_exit()


def _open_output(spec: ChildSpec, show: Callable[[str], None]) -> ChildOutput:
    if spec.log_path is None:
        return ShownOutput(spec.name, show)
    try:
        return LoggedOutput(spec.log_path)
    except OSError as error:
        raise StartupError(f"log file {spec.log_path} cannot be written: {error.strerror}") from error


def _spawn(spec: ChildSpec, output: ChildOutput) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            list(spec.argv),
            env=None if spec.env is None else dict(spec.env),
            stdin=subprocess.PIPE if spec.stdin else subprocess.DEVNULL,
            stdout=output.fileno(),
            stderr=subprocess.STDOUT,
            pass_fds=spec.pass_fds,
            start_new_session=True,
            preexec_fn=_die_with(os.getpid()),
        )
    except OSError as error:
        raise StartupError(f"{spec.name} cannot be started: {error}") from error
    finally:
        output.handed_over()


def _die_with(parent_pid: int) -> Callable[[], None] | None:
    """What the child does between fork and exec so that it ends with its parent.

    Our other threads do not exist there, and a lock one of them held stays locked for ever; so this makes two
    system calls through a function loaded beforehand, and touches nothing else.
    """
    libc = _libc
    if libc is None:
        return None

    def set_parent_death_signal() -> None:
        libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent_pid:
            # The parent went before the signal was set, and no signal will ever come.
            os._exit(1)

    return set_parent_death_signal
