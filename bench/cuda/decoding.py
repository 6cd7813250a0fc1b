"""An engine in whose every step a fixed number of sequences gets one token each."""

from __future__ import annotations

import time
from itertools import pairwise

import torch

from bench.cuda.asking import check, greedy
from bench.cuda.own import PROMPT_BUDGET
from bench.cuda.stopwatch import settled_seconds
from engine.engine import TorchEngine
from engine.protocol import EngineRequest

_NUM_WARM_UPS = 8


class Decoding:
    """Takes prompts in and steps until all of them decode; then every step is one of theirs.

    `num_steps` are as many as will be asked for.
    """

    def __init__(
        self, engine: TorchEngine, prompts: list[list[int]], *, num_steps: int, device: torch.device
    ) -> None:
        self._engine = engine
        self._device = device
        self._num_tokens = {str(index): len(prompt) for index, prompt in enumerate(prompts)}
        # The first to be done with their prompts decode while the last are not.
        longest = output_tokens(prompts, num_steps=num_steps)
        for id, prompt in zip(self._num_tokens, prompts, strict=True):
            engine.add(EngineRequest(id, prompt, longest, greedy()))
        waiting = set(self._num_tokens)
        while waiting:
            waiting -= set(self._step())
        for _ in range(_NUM_WARM_UPS):
            self._step()

    @property
    def context_tokens(self) -> float:
        """Tokens per sequence so far, the mean."""
        return sum(self._num_tokens.values()) / len(self._num_tokens)

    def steps(self, count: int) -> list[float]:
        """Seconds of each of so many steps; RuntimeError unless all sequences were in all of them."""
        stamps = [settled_seconds(self._device)]
        num_told = 0
        for _ in range(count):
            num_told += len(self._step())
            stamps.append(time.perf_counter())
        stamps[-1] = settled_seconds(self._device)
        if num_told != count * len(self._num_tokens):
            raise RuntimeError(f"{num_told} tokens in {count} steps of {len(self._num_tokens)} sequences")
        return [after - before for before, after in pairwise(stamps)]

    def _step(self) -> list[str]:
        """Whose turn it was."""
        ids = []
        for output in self._engine.step():
            check(output)
            self._num_tokens[output.id] += len(output.token_ids)
            ids += [output.id] * len(output.token_ids)
        return ids


def output_tokens(prompts: list[list[int]], *, num_steps: int) -> int:
    """Output tokens to ask for, so that no sequence ends before its last step."""
    prefill_steps = -(-sum(map(len, prompts)) // PROMPT_BUDGET)
    # Twice, since the chunks of prompts need not fill the budget.
    return 2 * prefill_steps + _NUM_WARM_UPS + 8 + num_steps
