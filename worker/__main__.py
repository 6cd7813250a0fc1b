"""`python -m worker`: run one worker until SIGTERM."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from engine.protocol import EngineError
from models.errors import HeadraceError
from models.failpoints import arm_failpoints
from models.logs import configure_logging
from models.settings import load_settings

if TYPE_CHECKING:
    from worker.runtime import PrepareEngine


def main(prepare: PrepareEngine | None = None) -> int:
    """Run the worker and return its exit code; 2 means that it could not start.

    `prepare` is for those who bring an engine of their own; then torch is not loaded.
    """
    # Threads of OpenMP that spin while they wait take the cores from tokenising and publishing, and from
    # each other where the machine is shared. Read when torch is loaded, so it is set before.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    # Progress bars are for people; a log would hold them as one endless line.
    os.environ.setdefault("TQDM_DISABLE", "1")
    # oneDNN keeps a compiled product for every number of rows it has seen, a thousand of them otherwise.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")
    try:
        settings = load_settings(bare_urls=True)
        arm_failpoints(settings.data_dir)
        configure_logging(settings)
        # Imported here: the heartbeat process imports this module again, and must stay without torch.
        from worker.runtime import run_worker

        if prepare is None:
            from engine.engine import prepare_engine

            prepare = prepare_engine
        return run_worker(settings, prepare)
    except (HeadraceError, EngineError, ValueError) as error:
        print(f"headrace worker: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    # At once: a worker that broke may have threads in the middle of a computation, and to end the
    # interpreter under them would abort with a message that says nothing.
    os._exit(code)
