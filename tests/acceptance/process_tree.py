"""Processes that belong together, and what is left of them."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

_END_SECONDS = 60.0


class ProcessTree:
    """A process and everything that it started, however deep."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def members(self) -> list[psutil.Process]:
        """Every process of the tree that lives now, the root first."""
        try:
            root = psutil.Process(self.pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def role(self, name: str) -> psutil.Process:
        """The process of a role (`python -m <name>`); LookupError while there is none."""
        for process in self.members():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                if process.cmdline()[-2:] == ["-m", name]:
                    return process
        raise LookupError(f"no process of the role {name}")

    def kill(self) -> list[psutil.Process]:
        """SIGKILL all of it as if at one moment, and return what was killed.

        All are stopped first, so that none sees the end of another and acts upon it.
        """
        members = self.members()
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for process in members:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(number)
        return members


def all_end(processes: Sequence[psutil.Process]) -> bool:
    """Wait for these processes, and say whether all of them ended in time."""
    _, alive = psutil.wait_procs(list(processes), timeout=_END_SECONDS)
    return all(_is_zombie(process) for process in alive)


def processes_around(folder: Path) -> list[str]:
    """Describe the processes that work in a folder or were told about it."""
    return list(_around(str(folder)))


def peak_memory_bytes(process: psutil.Process) -> int:
    """The most memory that a process ever had resident; 0 when it is gone."""
    try:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


def _around(folder: str) -> Iterator[str]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            words = [process.cwd(), *process.cmdline(), *process.environ().values()]
            if any(folder in word for word in words):
                yield f"{process.pid} {process.name()}"


def _is_zombie(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
