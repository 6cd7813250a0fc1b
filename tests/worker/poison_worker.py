"""`python -m tests.worker.poison_worker`: a worker that one prompt kills, and that is started again then.

POISON           the prompt; the first step with it ends the process by SIGKILL
CRASHES          a file that gets one line for each such end

Every life is forked off a process that has imported all that a worker needs; SIGTERM ends both.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch


def main() -> None:
    # Imported here: the heartbeat process imports this module again, and must stay without torch.
    from bench.spare_fork import SpareFork
    from engine.checkpoint import locate_checkpoint
    from engine.protocol import EngineOutput, EngineRequest
    from engine.tokenizer import Tokenizer
    from tests.worker.fake_engine import FakeEngine
    from worker import __main__ as program
    from worker import runtime  # noqa: F401 (loaded once, for all lives)

    class MortalEngine(FakeEngine):
        """Computes with anybody but one."""

        def __init__(self, seats: int, poison: list[int]) -> None:
            super().__init__(seats=seats)
            self._poison = poison
            self._is_poisoned = False

        def add(self, request: EngineRequest) -> None:
            super().add(request)
            self._is_poisoned |= list(request.token_ids) == self._poison

        def step(self) -> list[EngineOutput]:
            if self._is_poisoned:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().step()

    def prepare(config: Any) -> Callable[[], FakeEngine]:
        tokenizer = Tokenizer.load(locate_checkpoint(config.model, config.cache_dir))
        return lambda: MortalEngine(config.max_num_seqs, tokenizer.encode_text(os.environ["POISON"]))

    def live() -> int:
        with patch("worker.window_reader.MAX_BLOCK_SECONDS", 0.2):
            return program.main(prepare)

    os._exit(SpareFork(live, Path(os.environ["CRASHES"])).run())


if __name__ == "__main__":
    main()
