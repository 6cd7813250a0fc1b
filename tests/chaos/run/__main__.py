"""`python -m tests.chaos.run`: break an installation for some minutes, and prove that nothing was lost.

Exit code 0 if every promise was kept, 1 if one was broken, 2 where it cannot run here.
"""

from __future__ import annotations

import argparse
import secrets
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import pytest

from tests.chaos.run.chaos import Options, run_chaos


def main() -> int:
    """Read the command line, run, and return the exit code."""
    options = _read_options()
    # As Ctrl-C does: everything that was started ends with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    print(f"==> Chaos: seed {options.seed}, {options.seconds:.0f} s on {options.database}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix=f"headrace-chaos-{options.seed}-"))
    try:
        report = run_chaos(options, folder, say=lambda line: print(line, flush=True))
    except (pytest.skip.Exception, pytest.fail.Exception) as error:
        # What the servers of the tests raise where a program is missing.
        print(f"chaos: {error}", file=sys.stderr)
        return 2
    report.write()
    print(report.text())
    if report.is_good:
        shutil.rmtree(folder)
        return 0
    print(f"All logs and all that was broken: {folder}")
    return 1


def _read_options() -> Options:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="default: another one each time")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else secrets.randbelow(1_000_000)
    return Options(seed, given.minutes * 60, given.database)


if __name__ == "__main__":
    sys.exit(main())
