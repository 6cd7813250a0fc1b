"""`python -m tests.acceptance.timed_worker`: a worker that writes down what each step of its engine did.

STEPS            a file that gets one line of JSON for each step: when it began and ended in seconds of the
                 machine's monotonic clock, tokens computed, tokens drawn for bulk, and which urgent requests
                 got their first token in it, with the number of steps that were planned since they came
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def main() -> int:
    # Imported here: the heartbeat process imports this module again, and must stay without torch.
    from engine.engine import TorchEngine, prepare_engine
    from engine.protocol import EngineOutput, EngineRequest
    from worker import __main__ as program

    class TimedEngine:
        """Has the engine compute, and keeps the books."""

        def __init__(self, engine: TorchEngine, steps: Path) -> None:
            self._engine = engine
            self._steps = steps.open("a", buffering=1)
            self._num_waited: dict[str, int] = {}
            self._bulk: set[str] = set()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._engine, name)

        def add(self, request: EngineRequest) -> None:
            self._engine.add(request)
            if request.priority == 0:
                self._num_waited[request.id] = 0
            else:
                self._bulk.add(request.id)

        def step(self) -> list[EngineOutput]:
            began, num_before = time.monotonic(), self._engine.figures().num_computed_tokens
            outputs = self._engine.step()
            self._num_waited = {id: number + 1 for id, number in self._num_waited.items()}
            speaking = {output.id for output in outputs if output.token_ids}
            first = {id: self._num_waited.pop(id) for id in speaking & self._num_waited.keys()}
            line = {
                "began": began,
                "ended": time.monotonic(),
                "num_computed": self._engine.figures().num_computed_tokens - num_before,
                "num_drawn": sum(len(output.token_ids) for output in outputs),
                "num_bulk": sum(len(output.token_ids) for output in outputs if output.id in self._bulk),
                "first_tokens": first,
            }
            self._steps.write(json.dumps(line) + "\n")
            return outputs

    def prepare(config: Any) -> Callable[[], Any]:
        build = prepare_engine(config)
        return lambda: TimedEngine(build(), Path(os.environ["STEPS"]))

    return program.main(prepare)


if __name__ == "__main__":
    sys.exit(main())
