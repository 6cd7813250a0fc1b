from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from models.errors import StartupError
from models.failpoints import POINT_NAMES, FailpointError, PointName, arm_failpoints, failpoint
from tests.cli.process import REPOSITORY

#: Hits a point five times, in a process of its own.
_PROGRAM = (
    "import sys; from pathlib import Path; from models.failpoints import arm_failpoints, failpoint\n"
    "arm_failpoints(Path('data'))\n"
    "sys.stdin.read()\n"
    "for _ in range(5): failpoint('read_after')\n"
)


@pytest.fixture(autouse=True)
def disarmed(tmp_path: Path) -> Iterator[None]:
    """No test leaves this process armed."""
    yield
    arm_failpoints(tmp_path, {})


def _allowed(fail: str, **more: str) -> dict[str, str]:
    return {"HEADRACE_FAIL": fail, "HEADRACE_ALLOW_FAILPOINTS": "1", **more}


def _start(folder: Path, fail: str) -> subprocess.Popen[bytes]:
    """A process that hits `read_after` five times as soon as its standard input closes."""
    environment = _allowed(fail, HEADRACE_FAIL_DIR=str(folder), PYTHONPATH=str(REPOSITORY))
    return subprocess.Popen(
        [sys.executable, "-c", _PROGRAM],
        cwd=folder.parent,
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
    )


def _hits(folder: Path) -> bytes:
    return (folder / "read_after.hits").read_bytes()


def test_a_point_that_is_not_armed_does_nothing(tmp_path: Path) -> None:
    arm_failpoints(tmp_path, {})

    for name in POINT_NAMES:
        failpoint(name)

    assert not list(tmp_path.iterdir())


def test_raise_raises_at_this_point_alone_and_counts(tmp_path: Path) -> None:
    arm_failpoints(tmp_path, _allowed("read_after:raise"))

    failpoint("claim_before_commit")
    for _ in range(3):
        with pytest.raises(FailpointError, match="read_after"):
            failpoint("read_after")

    assert [path.name for path in (tmp_path / "failpoints").iterdir()] == ["read_after.hits"]
    assert _hits(tmp_path / "failpoints") == b"..."


def test_once_is_the_first_hit_of_all_lives(tmp_path: Path) -> None:
    for _ in range(2):
        arm_failpoints(tmp_path, _allowed("read_after:raise:once , claim_after_commit:raise"))
        with pytest.raises(FailpointError, match="claim_after_commit"):
            failpoint("claim_after_commit")
        if not (tmp_path / "failpoints" / "read_after.hits").exists():
            with pytest.raises(FailpointError, match="read_after"):
                failpoint("read_after")
        failpoint("read_after")

    assert _hits(tmp_path / "failpoints") == b"."


def test_sleep_takes_so_long(tmp_path: Path) -> None:
    arm_failpoints(tmp_path, _allowed("read_after:sleep=0.05"))
    began_at = time.monotonic()

    failpoint("read_after")

    assert time.monotonic() - began_at >= 0.05
    assert _hits(tmp_path / "failpoints") == b"."


def test_kill9_ends_the_process_at_its_first_hit(tmp_path: Path) -> None:
    process = _start(tmp_path / "hits", "read_after:kill9")
    process.communicate(timeout=60)

    assert process.returncode == -signal.SIGKILL
    assert _hits(tmp_path / "hits") == b"."


def test_of_several_processes_once_strikes_one(tmp_path: Path) -> None:
    processes = [_start(tmp_path / "hits", "read_after:kill9:once") for _ in range(4)]

    for process in processes:
        # All of them are there before the first goes on.
        assert process.stdin is not None
        process.stdin.close()
    codes = [process.wait(60) for process in processes]

    assert sorted(codes) == [-signal.SIGKILL, 0, 0, 0]
    assert _hits(tmp_path / "hits") == b"."


@pytest.mark.parametrize(
    ("fail", "said"),
    [
        ("read_afterwards:raise", "names no failpoint 'read_afterwards'; there are: accept_before_commit, "),
        ("read_after", "asks for '' at read_after; the modes are kill9, raise and sleep=<seconds>"),
        ("read_after:kill", "asks for 'kill' at read_after"),
        ("read_after:sleep", "asks for 'sleep' at read_after"),
        ("read_after:sleep=-1", "asks for 'sleep=-1' at read_after"),
        ("read_after:sleep=inf", "asks for 'sleep=inf' at read_after"),
        ("read_after:sleep=nan", "asks for 'sleep=nan' at read_after"),
        ("read_after:raise:twice", "'read_after:raise:twice' must be <name>:<mode>, or <name>:<mode>:once"),
        ("read_after:raise:once:once", "must be <name>:<mode>, or <name>:<mode>:once"),
        ("read_after:raise,", "names no failpoint ''"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, fail: str, said: str) -> None:
    with pytest.raises(StartupError) as caught:
        arm_failpoints(tmp_path, _allowed(fail))

    assert said in caught.value.message
    failpoint("read_after")


def test_nothing_is_armed_without_leave(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="set HEADRACE_ALLOW_FAILPOINTS=1 as well"):
        arm_failpoints(tmp_path, {"HEADRACE_FAIL": "read_after:raise", "HEADRACE_ALLOW_FAILPOINTS": "true"})

    failpoint("read_after")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(StartupError, match=r"HEADRACE_FAIL_DIR .*file/hits cannot be made"):
        arm_failpoints(
            tmp_path, _allowed("read_after:raise", HEADRACE_FAIL_DIR=str(tmp_path / "file" / "hits"))
        )


def test_each_point_stands_in_the_code() -> None:
    folders = [REPOSITORY / name for name in ("api", "cli", "models", "worker")]
    code = "".join(path.read_text() for folder in folders for path in sorted(folder.rglob("*.py")))

    assert len(POINT_NAMES) == 16
    assert not [name for name in POINT_NAMES if f'failpoint("{name}")' not in code]


def test_a_point_that_is_not_armed_costs_no_more_than_a_few_calls(tmp_path: Path) -> None:
    arm_failpoints(tmp_path, {})

    cost = min(_thread_seconds(failpoint) for _ in range(10))
    least = min(_thread_seconds(_do_nothing) for _ in range(10))

    assert cost < 10 * least


def _do_nothing(_name: PointName) -> None:
    pass


def _thread_seconds(call: Callable[[PointName], None]) -> float:
    """The time of this thread alone, whatever else computes on the machine."""
    began_at = time.thread_time()
    for _ in range(5000):
        call("read_after")
    return time.thread_time() - began_at
