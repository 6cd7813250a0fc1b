"""transformers' `generate` in padded static batches as a contender."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch
from transformers import GenerationConfig

from bench.contender import Run
from bench.workload import Line, Workload

_PAD = 0


class PaddedGenerate:
    """Batches in the order given, prompts padded on the left, each batch as long as its longest line."""

    def __init__(self, model: Any, *, batch_size: int) -> None:
        self._model = model
        self._batch_size = batch_size

    def run(self, workload: Workload) -> Run:
        answers: list[list[int]] = []
        started = time.perf_counter()
        for lines in self._batches(workload):
            answers += self._answer(lines)
        seconds = time.perf_counter() - started
        return Run(seconds, answers, {"useful share": self._useful_share(workload)})

    def _useful_share(self, workload: Workload) -> float:
        num_computed = 0
        for lines in self._batches(workload):
            width = max(len(line.token_ids) for line in lines)
            num_computed += len(lines) * (width + max(line.max_tokens for line in lines))
        return (workload.num_prompt_tokens + workload.num_output_tokens) / num_computed

    def _batches(self, workload: Workload) -> Iterator[tuple[Line, ...]]:
        for first in range(0, len(workload.lines), self._batch_size):
            yield workload.lines[first : first + self._batch_size]

    def _answer(self, lines: tuple[Line, ...]) -> list[list[int]]:
        width = max(len(line.token_ids) for line in lines)
        padding = [width - len(line.token_ids) for line in lines]
        ids = [[_PAD] * count + line.token_ids for count, line in zip(padding, lines, strict=True)]
        mask = [[0] * count + [1] * (width - count) for count in padding]
        length = max(line.max_tokens for line in lines)
        device = self._model.device
        with torch.inference_mode():
            output = self._model.generate(
                torch.tensor(ids, device=device),
                attention_mask=torch.tensor(mask, device=device),
                generation_config=greedy_config(length),
            )
        rows = output[:, width:].tolist()
        return [row[: line.max_tokens] for row, line in zip(rows, lines, strict=True)]


def greedy_config(max_tokens: int) -> GenerationConfig:
    """Greedy, and nothing ends a text before its length."""
    return GenerationConfig(do_sample=False, max_new_tokens=max_tokens, eos_token_id=None, pad_token_id=_PAD)
