"""Failpoints: places on a job's walk where a test lets a process die, fail or wait.

HEADRACE_FAIL               `<name>:<mode>[:once]`, several separated by commas. Modes: `kill9` (SIGKILL of
                            the own process), `raise` (FailpointError), `sleep=<seconds>`. With `once` only
                            the first hit counts, of all processes that share the folder and all their lives.
HEADRACE_ALLOW_FAILPOINTS   must be 1 beside it; no configuration file can set either.
HEADRACE_FAIL_DIR           a folder in which each hit leaves a byte, in `<name>.hits`; default: `failpoints`
                            in the data folder.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from models.errors import StartupError

#: Failpoints of a job, in the order of its walk.
JobPointName = Literal[
    "accept_before_commit",
    "accept_after_commit",
    "accept_after_xadd",
    "dispatch_before_commit",
    "dispatch_after_commit",
    "dispatch_after_xadd",
    "read_after",
    "claim_before_commit",
    "claim_after_commit",
    "compute_before_step",
    "compute_after_step",
    "publish_before_commit",
    "publish_after_commit",
    "acknowledge_after",
]
#: Failpoints of a batch that comes from a file.
BatchPointName = Literal["split_before_commit", "split_after_commit"]

PointName = Literal[JobPointName, BatchPointName]
JOB_POINT_NAMES: tuple[JobPointName, ...] = get_args(JobPointName)
POINT_NAMES: tuple[PointName, ...] = get_args(PointName)

_ONCE = "once"
_SLEEP = "sleep="


class FailpointError(RuntimeError):
    """A failpoint was told to raise."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """What happens at one failpoint, and the file that tells of it."""

    act: Callable[[], None]
    hits: Path
    is_once: bool

    def hit(self) -> None:
        if self._count():
            self.act()

    def _count(self) -> bool:
        """Leave a byte in the file; False if there may be only one, and somebody has left it already."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (os.O_EXCL if self.is_once else 0)
        try:
            file = os.open(self.hits, flags, 0o600)
        except FileExistsError:
            return False
        try:
            os.write(file, b".")
        finally:
            os.close(file)
        return True


# Of the process, like its logging: set at its start, before there are threads, and then only read.
_armed: dict[str, _Failure] = {}


def failpoint(name: PointName) -> None:
    """Do here what HEADRACE_FAIL asks for; where it asks for nothing, this is a look into an empty dict."""
    failure = _armed.get(name)
    if failure is not None:
        failure.hit()


def arm_failpoints(data_dir: Path, environment: Mapping[str, str] = os.environ) -> None:
    """Let the failpoints of this process do what the environment asks for, and no others anything.

    Raises StartupError for a name or a mode that there is not, and where failpoints are not allowed.
    """
    _armed.clear()
    asked = environment.get("HEADRACE_FAIL")
    if not asked:
        return
    if environment.get("HEADRACE_ALLOW_FAILPOINTS") != "1":
        raise StartupError(
            "HEADRACE_FAIL makes processes die: unset it, or set HEADRACE_ALLOW_FAILPOINTS=1 as well"
        )
    folder = Path(environment.get("HEADRACE_FAIL_DIR") or data_dir / "failpoints")
    failures = dict(_read(text.strip(), folder) for text in asked.split(","))
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StartupError(f"HEADRACE_FAIL_DIR {folder} cannot be made: {error.strerror}") from error
    _armed.update(failures)


def _read(text: str, folder: Path) -> tuple[str, _Failure]:
    name, *how = text.split(":")
    if name not in POINT_NAMES:
        raise StartupError(f"HEADRACE_FAIL names no failpoint {name!r}; there are: {', '.join(POINT_NAMES)}")
    if how[1:] not in ([], [_ONCE]):
        raise StartupError(f"HEADRACE_FAIL {text!r} must be <name>:<mode>, or <name>:<mode>:{_ONCE}")
    act = _action(name, how[0] if how else "")
    return name, _Failure(act, folder / f"{name}.hits", is_once=how[1:] == [_ONCE])


def _action(name: str, mode: str) -> Callable[[], None]:
    if mode == "kill9":
        return lambda: os.kill(os.getpid(), signal.SIGKILL)
    if mode == "raise":
        return lambda: _fail(name)
    seconds = _seconds(mode.removeprefix(_SLEEP)) if mode.startswith(_SLEEP) else None
    if seconds is None:
        raise StartupError(
            f"HEADRACE_FAIL asks for {mode!r} at {name}; the modes are kill9, raise and sleep=<seconds>"
        )
    return lambda: time.sleep(seconds)


def _fail(name: str) -> None:
    raise FailpointError(f"failpoint {name}")


def _seconds(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if 0 <= seconds < math.inf else None
