"""The time that the matrix products of a workload would take alone, at the rate measured here."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

_MATRIX_SIZE = 1536
_NUM_TRIES = 3


@dataclass(frozen=True, slots=True)
class TokenWork:
    """Floating-point operations for one token: in the layers, and in the head where a token is drawn."""

    layer_flop: float
    head_flop: float

    def seconds(self, *, num_prompt_tokens: int, num_output_tokens: int, flop_per_second: float) -> float:
        """The least time for so many tokens, if nothing but matrix products took any.

        Every token passes the layers once, and the head has a row for each output token.
        """
        num_tokens = num_prompt_tokens + num_output_tokens
        flop = num_tokens * self.layer_flop + num_output_tokens * self.head_flop
        return flop / flop_per_second


def token_work(folder: Path) -> TokenWork:
    """Count a dense model's operations from the shapes of its matrices; nothing is loaded."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    head = model.get_output_embeddings()
    tables = {id(each.weight) for each in model.modules() if isinstance(each, torch.nn.Embedding)}
    tables.add(id(head.weight))
    num_weights = sum(
        each.numel() for each in model.parameters() if each.ndim == 2 and id(each) not in tables
    )
    return TokenWork(layer_flop=2.0 * num_weights, head_flop=2.0 * head.weight.numel())


def measure_flop_per_second(size: int = _MATRIX_SIZE) -> float:
    """The best rate of a few square float32 products."""
    left, right = torch.rand(size, size), torch.rand(size, size)
    best = float("inf")
    for _ in range(_NUM_TRIES):
        started = time.perf_counter()
        torch.mm(left, right)
        best = min(best, time.perf_counter() - started)
    return 2.0 * size**3 / best
