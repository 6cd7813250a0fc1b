"""`python -m worker`: run one worker until SIGTERM."""

from __future__ import annotations

import os
import sys

from engine.protocol import EngineError
from models.errors import HeadraceError
from models.logs import configure_logging
from models.misspelling import warn_of_misspellings
from models.settings import load_settings


def main() -> int:
    """Run the worker and return its exit code; 2 means that it could not start."""
    # Threads of OpenMP that spin while they wait take the cores from tokenising and publishing, and from
    # each other where the machine is shared. Read when torch is loaded, so it is set before.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    # Progress bars are for people; a log would hold them as one endless line.
    os.environ.setdefault("TQDM_DISABLE", "1")
    # oneDNN keeps a compiled product for every number of rows it has seen, a thousand of them otherwise.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")
    try:
        settings = load_settings(bare_urls=True)
        configure_logging(settings)
        warn_of_misspellings()
        # Imported here: the heartbeat process imports this module again, and must stay without torch.
        from worker.runtime import run_worker

        return run_worker(settings)
    except (HeadraceError, EngineError, ValueError) as error:
        print(f"headrace worker: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    # At once: a worker that broke may have threads in the middle of a computation, and to end the
    # interpreter under them would abort with a message that says nothing.
    os._exit(code)
