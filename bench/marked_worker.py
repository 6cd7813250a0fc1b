"""`python -m bench.marked_worker`: the real worker, with the marked engine in the place of ours; no torch.

HEADRACE_ENGINE_LOG         a file that gets a line with the job's id for every run of a job in an engine
HEADRACE_ENGINE_SPARE_FORK  1: each life of the worker is forked off a process that has imported all it
                            needs, and one that a signal ends is followed by the next within milliseconds
HEADRACE_ENGINE_DEATHS      a file that gets a line with the signal for each life that was ended so
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from bench.spare_fork import SpareFork


def live() -> int:
    """Be the worker, and return its exit code."""
    # Imported here: the heartbeat process imports this module again, and needs no engine.
    from bench.marked_engine import prepare_marked_engine
    from worker.__main__ import main as work

    return work(prepare_marked_engine)


def main() -> int:
    """Work until SIGTERM, and return the exit code of the last life."""
    if os.environ.get("HEADRACE_ENGINE_SPARE_FORK") != "1":
        return live()
    # Loaded once, for all lives.
    import worker.runtime  # noqa: F401

    deaths = os.environ.get("HEADRACE_ENGINE_DEATHS")
    return SpareFork(live, Path(deaths) if deaths else None).run()


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)
