"""A PostgreSQL server of our own, with its safety on, for as long as it is measured."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from models.database import Database
from models.errors import DatabaseUnavailable, StartupError
from models.presence import require_database

#: Debian keeps the server's programs out of PATH.
_DEBIAN = Path("/usr/lib/postgresql")
_START_SECONDS = 60.0
_STOP_SECONDS = 30.0
_LOOK_AGAIN_SECONDS = 0.1


def find_postgres() -> Path | None:
    """The folder of the newest server's programs; None where there is none."""
    in_path = shutil.which("initdb")
    newest_first = sorted(_DEBIAN.glob("*/bin/initdb"), key=lambda path: -float(path.parts[-3]))
    found = Path(in_path) if in_path else next(iter(newest_first), None)
    return None if found is None else found.resolve().parent


@contextmanager
def postgres(programs: Path, folder: Path) -> Iterator[str]:
    """Serve a new, empty database on a Unix socket in a folder, and give its URL.

    The folder's path must be short: that of a socket may have little more than 100 bytes.
    """
    user = _server_user()
    folder.mkdir(parents=True)
    if user is not None:
        shutil.chown(folder, user, user)
    store = ["-D", str(folder / "data")]
    options = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
    subprocess.run(
        [programs / "initdb", *store, *options],
        check=True,
        stdout=subprocess.DEVNULL,
        cwd=folder,
        user=user,
        group=user,
        extra_groups=None if user is None else [],
    )
    server = subprocess.Popen(
        [programs / "postgres", *store, "-k", str(folder), "-c", "listen_addresses="],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        start_new_session=True,
        user=user,
        group=user,
        extra_groups=None if user is None else [],
    )
    try:
        url = f"postgresql+psycopg://postgres@/postgres?host={folder}"
        _await(url)
        yield url
    finally:
        server.terminate()
        server.wait(_STOP_SECONDS)


def _await(url: str) -> None:
    give_up_at = time.monotonic() + _START_SECONDS
    while True:
        database = Database(url)
        try:
            require_database(database)
            return
        except (StartupError, DatabaseUnavailable):
            if time.monotonic() > give_up_at:
                raise
        finally:
            database.close()
        time.sleep(_LOOK_AGAIN_SECONDS)


def _server_user() -> str | None:
    """Whom to run the server as; None means as ourselves. PostgreSQL refuses to run as root."""
    return pwd.getpwnam("postgres").pw_name if os.geteuid() == 0 else None
