"""Lives that follow each other, as a test of a crashing worker needs them."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.process import REPOSITORY, ends_within

#: Each life says its number, does what the next line on standard input says, and ends with 3.
_PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from bench.spare_fork import SpareFork

def live():
    print(os.getpid(), flush=True)
    match sys.stdin.buffer.raw.read(1):
        case b"k": os.kill(os.getpid(), signal.SIGKILL)
        case b"w": time.sleep(300)
        case b"t":
            signal.signal(signal.SIGTERM, lambda *_: os._exit(5))
            print("waits", flush=True)
            time.sleep(300)
    return 3

sys.exit(SpareFork(live, Path(sys.argv[1])).run())
"""


@contextmanager
def lives(what: bytes, deaths: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process whose lives do one of these after the other; killed at the end."""
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(deaths)],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        process.stdin.write(what)
        process.stdin.flush()
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode().strip()


def test_a_life_that_is_killed_is_followed_by_another_and_one_that_ends_is_the_last(tmp_path: Path) -> None:
    with lives(b"kke", tmp_path / "deaths") as process:
        pids = [said(process) for _ in range(3)]

        assert process.wait(60) == 3
    assert len(set(pids)) == 3
    assert (tmp_path / "deaths").read_text() == "9\n9\n"


def test_sigterm_ends_the_life_and_there_is_no_other(tmp_path: Path) -> None:
    with lives(b"kt", tmp_path / "deaths") as process:
        assert [said(process), said(process), said(process)][2] == "waits"
        process.terminate()

        assert process.wait(60) == 5
    assert (tmp_path / "deaths").read_text() == "9\n"


def test_a_life_that_does_not_heed_sigterm_yet_is_the_last_all_the_same(tmp_path: Path) -> None:
    with lives(b"w", tmp_path / "deaths") as process:
        said(process)
        process.terminate()

        assert process.wait(60) == 128 + signal.SIGTERM


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_a_life_does_not_survive_its_parent(tmp_path: Path) -> None:
    with lives(b"w", tmp_path / "deaths") as process:
        pid = int(said(process))
        process.kill()

        assert ends_within(pid, 30)
