"""`python -m tests.worker.lossy_worker`: a worker that loses its engine at a certain step.

LOSE_AT_STEP     the step, counted over all engines
LOSE_BY          `error`: the network fails; `device`: as a broken CUDA context does
BUILDS           how many engines can be built before memory is short for ever
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch


def lose_at(number: int, error: Exception, forward: Callable[..., Any]) -> Callable[..., Any]:
    """The same forward, but its call of this number ends with an error."""
    num_calls = 0

    def losing(**given: Any) -> Any:
        nonlocal num_calls
        num_calls += 1
        if num_calls == number:
            raise error
        return forward(**given)

    return losing


def main() -> None:
    # Imported here: the heartbeat process imports this module again, and must stay without torch.
    import torch

    from engine.engine import TorchEngine, prepare_engine
    from worker import __main__ as program
    from worker import runtime
    from worker.engine_keeper import EngineKeeper

    errors = {
        "error": RuntimeError("the network has a fault"),
        "device": torch.AcceleratorError("CUDA error: an illegal memory access was encountered"),
    }

    def prepare_lossy(config: Any) -> Callable[[], TorchEngine]:
        build = prepare_engine(config)
        model = build()._runner.network.model
        error = errors[os.environ["LOSE_BY"]]
        lossy_forward = lose_at(int(os.environ["LOSE_AT_STEP"]), error, model.forward)
        patch.object(model, "forward", lossy_forward).start()
        builds_left = int(os.environ["BUILDS"])

        def build_lossy() -> TorchEngine:
            nonlocal builds_left
            if not builds_left:
                raise MemoryError("no memory for the cache")
            builds_left -= 1
            return build()

        return build_lossy

    impatient = partial(EngineKeeper, first_pause_seconds=0)
    with patch.object(runtime, "EngineKeeper", impatient):
        code = program.main(prepare_lossy)
    os._exit(code)


if __name__ == "__main__":
    main()
