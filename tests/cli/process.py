"""Processes that are not our children: starting a Headrace to be killed, waiting for an end."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


@contextmanager
def python(script: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a script in an interpreter of its own that can import the packages; killed at the end.

    Its stdout is piped; its log goes to stderr.
    """
    quiet = (
        "import structlog, sys; structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", f"{quiet}\n{script}", *arguments],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def first_line(process: subprocess.Popen[str]) -> str:
    """The first line on its stdout."""
    if process.stdout is None:
        raise ValueError("stdout of this process is not piped")
    return process.stdout.readline().strip()


def ends_within(pid: int, timeout_seconds: float) -> bool:
    """Say whether this process, of whatever parent, is gone in time."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        readable, _, _ = select.select([handle], [], [], timeout_seconds)
        return bool(readable)
    finally:
        os.close(handle)
