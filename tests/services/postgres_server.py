"""A private PostgreSQL server for tests, on a Unix socket in a temporary folder."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from pathlib import Path
from typing import Self

import psycopg

from tests.services.missing import missing
from tests.services.server_process import ServerProcess

#: Debian keeps the server's programs out of PATH.
_DEBIAN = Path("/usr/lib/postgresql")

#: Speed instead of safety: what these databases hold is worth nothing after the test.
_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "200",
}

#: What a commit needs to outlive the server's processes; to outlive the machine it would need more.
_DURABLE = {"synchronous_commit": "on"}


class PostgresServer:
    """A running PostgreSQL that trusts every local user.

    With `is_durable`, what was committed is there again after `quit` and `start_again`.
    """

    def __init__(self, *, is_durable: bool = False) -> None:
        initdb = _find_program("initdb")
        self._user = _server_user()
        self._folder = Path(tempfile.mkdtemp(prefix="headrace-pg-"))
        if self._user is not None:
            shutil.chown(self._folder, self._user, self._user)
        self._initialise(initdb, self._folder / "data")
        self._settings = _SETTINGS | (_DURABLE if is_durable else {})
        self._process = self._start()

    @property
    def socket(self) -> Path:
        """The socket that clients connect to, given its folder as the host."""
        return self._folder / ".s.PGSQL.5432"

    @property
    def pid(self) -> int:
        return self._process.pid

    def quit(self) -> None:
        """End at once, as `pg_ctl stop -m immediate` does: connections break, and nothing is written out."""
        self._process.quit()

    def start_again(self) -> None:
        """Run again with the same data, and answer when this returns."""
        self._process = self._start()

    def create_database(self) -> str:
        """Make a new, empty database and return its SQLAlchemy URL."""
        name = f"test_{uuid.uuid4().hex}"
        self._execute(f'CREATE DATABASE "{name}"')
        return f"postgresql+psycopg://postgres@/{name}?host={self._folder}"

    def drop_database(self, url: str) -> None:
        """Remove a database, whoever is still connected."""
        name = url.rpartition("/")[0].rpartition("/")[2].partition("?")[0]
        self._execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def close(self) -> None:
        self._process.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> ServerProcess:
        options = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        process = ServerProcess(
            [_find_program("postgres"), "-D", str(self._folder / "data"), "-k", str(self._folder), *options],
            log=self._folder / "log",
            user=self._user,
        )
        process.wait_until(self._answers)
        return process

    def _initialise(self, initdb: str, store: Path) -> None:
        options = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
        subprocess.run(
            [initdb, "-D", str(store), *options],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=self._folder,
            user=self._user,
            group=self._user,
            extra_groups=None if self._user is None else [],
        )

    def _execute(self, statement: str) -> None:
        with psycopg.connect(
            host=str(self._folder), user="postgres", dbname="postgres", autocommit=True
        ) as connection:
            connection.execute(statement.encode())

    def _answers(self) -> bool:
        try:
            self._execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True


def _find_program(name: str) -> str:
    newest_first = sorted(_DEBIAN.glob(f"*/bin/{name}"), key=lambda path: -float(path.parts[-3]))
    found = shutil.which(name) or next(map(str, newest_first), None)
    return found or missing(f"PostgreSQL's {name} is neither in PATH nor under {_DEBIAN}")


def _server_user() -> str | None:
    """Whom to run the server as; None means as ourselves. PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError:
        missing("PostgreSQL does not run as root, and there is no user postgres")
