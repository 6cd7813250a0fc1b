from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from cli.instance_lock import InstanceLock
from models.errors import StartupError
from tests.cli.process import first_line, python

HOLDER = """
import sys
from pathlib import Path
from cli.instance_lock import InstanceLock
with InstanceLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_folder_is_made_for_its_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "data"

    with InstanceLock(folder):
        mode = folder.stat().st_mode & 0o777

    assert mode == 0o700


def test_a_second_holder_is_told_who_the_first_is(tmp_path: Path) -> None:
    with (
        InstanceLock(tmp_path),
        pytest.raises(StartupError, match=rf"in use by another Headrace \(pid {os.getpid()}\).*--data-dir"),
    ):
        InstanceLock(tmp_path, wait_seconds=0).acquire()


def test_it_can_be_taken_again_after_release(tmp_path: Path) -> None:
    lock = InstanceLock(tmp_path, wait_seconds=0)
    with lock:
        pass

    with lock:
        assert lock.fileno() >= 0

    with pytest.raises(ValueError, match="not held"):
        lock.fileno()


def test_it_is_free_once_a_killed_holder_is_gone(tmp_path: Path) -> None:
    with python(HOLDER, str(tmp_path)) as holder:
        assert first_line(holder) == "held"

        holder.kill()

    with InstanceLock(tmp_path, wait_seconds=0):
        pass


def test_a_child_that_inherited_it_keeps_it(tmp_path: Path) -> None:
    lock = InstanceLock(tmp_path, wait_seconds=0)
    lock.acquire()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=(lock.fileno(),)) as child:
        lock.release()

        with pytest.raises(StartupError):
            InstanceLock(tmp_path, wait_seconds=0).acquire()

        child.communicate()
    with InstanceLock(tmp_path, wait_seconds=0):
        pass


def test_it_waits_for_a_holder_that_is_about_to_end(tmp_path: Path) -> None:
    lock = InstanceLock(tmp_path)
    lock.acquire()
    with subprocess.Popen(["sleep", "0.2"], pass_fds=(lock.fileno(),)):
        lock.release()

        with InstanceLock(tmp_path, wait_seconds=10):
            pass


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(StartupError, match=r"cannot be used .*--data-dir"):
        InstanceLock(tmp_path / "file").acquire()
