"""`python -m bench.pipeline`: jobs a second from accept to stored, with an engine that answers at once."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.names import names_of
from bench.pipeline.house import House, serving
from bench.pipeline.measurement import Row, Run, measure_run
from bench.pipeline.postgres import find_postgres, postgres
from bench.pipeline.report import table, to_json
from models.errors import HeadraceError
from models.logs import configure_logging
from models.settings import load_settings

_DATABASES = ("sqlite", "postgresql")
#: Most jobs of the run that does not count.
_MAX_WARM_UP_JOBS = 50


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, and write `pipeline.json` into the folder `$OUT` if that is set."""
    options = _options(arguments)
    configure_logging(load_settings(log_level="warning"))
    try:
        rows = [row for database in options.databases for row in _measure(database, options)]
    except (HeadraceError, RuntimeError, OSError) as error:
        print(f"bench.pipeline: {error}", file=sys.stderr)
        return 2
    print(table(rows))
    out = os.environ.get("OUT")
    if out:
        # The URL may hold a password.
        shown = {name: value for name, value in vars(options).items() if name != "database_url"}
        found = to_json(rows, machine=_machine(), options=shown)
        Path(out, "pipeline.json").write_text(found + "\n", encoding="utf-8")
    return 0


def _measure(database: str, options: argparse.Namespace) -> list[Row]:
    ways = {"one by one": None, f"lists of {options.list_size}": options.list_size}
    runs: dict[str, list[Run]] = {way: [] for way in ways}
    with _house(database, options) as house:
        _run(house, "warm-up", min(options.jobs, _MAX_WARM_UP_JOBS), options, None)
        for repeat in range(options.repeats):
            for way, list_size in ways.items():
                print(f"{database}: {way} …", file=sys.stderr, flush=True)
                runs[way].append(_run(house, f"{way}, {repeat}", options.jobs, options, list_size))
    return [Row(database, way, found) for way, found in runs.items()]


def _run(house: House, name: str, num_jobs: int, options: argparse.Namespace, list_size: int | None) -> Run:
    prompts = [f"Run {name}: what does mill {number} grind?" for number in range(num_jobs)]
    return measure_run(house, prompts, num_connections=options.connections, list_size=list_size)


@contextmanager
def _house(database: str, options: argparse.Namespace) -> Iterator[House]:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        folder = Path(name)
        # The server's own user must get through to its folder.
        folder.chmod(0o755)
        with _database_url(database, folder, options) as url, serving(folder, url) as house:
            yield house


@contextmanager
def _database_url(database: str, folder: Path, options: argparse.Namespace) -> Iterator[str | None]:
    if database == "sqlite":
        yield None
        return
    if options.database_url is not None:
        yield options.database_url
        return
    programs = find_postgres()
    if programs is None:
        raise RuntimeError("there is no PostgreSQL here; install it, or give --database-url")
    with postgres(programs, folder / "pg") as url:
        yield url


def _machine() -> dict[str, str | int]:
    return {
        "cpu": platform.processor() or platform.machine(),
        "cores": os.cpu_count() or 1,
        "python": platform.python_version(),
    }


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline", description=__doc__)
    add = parser.add_argument
    add("--databases", type=names_of(_DATABASES), help="of sqlite, postgresql; default: those there are")
    add("--database-url", help="an empty PostgreSQL database; default: a server of our own")
    add("--jobs", type=_at_least_one, default=2000, help="jobs of one run")
    add("--list-size", type=_at_least_one, default=100)
    add("--connections", type=_at_least_one, default=8)
    add("--repeats", type=_at_least_one, default=3)
    options = parser.parse_args(arguments)
    if options.databases is None:
        has_postgres = options.database_url is not None or find_postgres() is not None
        options.databases = list(_DATABASES if has_postgres else _DATABASES[:1])
    return options


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {number}")
    return number


if __name__ == "__main__":
    sys.exit(main())
