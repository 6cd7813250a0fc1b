"""Logits in float32 are the same, bit for bit, alone and among others, at every position."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from engine.checkpoint import DEMO_MODEL
from engine.config import EngineConfig
from engine.engine import TorchEngine, build_engine
from engine.protocol import EngineRequest
from tests.engine.completion import build_tiny_engine, greedy_request, random_prompt
from tests.engine.logit_recorder import record_logits

NUM_MATES = 31


def mates(*, vocab_size: int, max_tokens: int) -> list[EngineRequest]:
    prompts = [[t % vocab_size for t in random_prompt(1 + 13 * i % 200, seed=i)] for i in range(NUM_MATES)]
    return [greedy_request(f"mate-{i}", ids, max_tokens) for i, ids in enumerate(prompts)]


def check_every_place(
    engine: TorchEngine, request: EngineRequest, places: list[int], max_tokens: int
) -> None:
    if not engine._runner.network.is_exact:
        pytest.skip("this machine's matrix products depend on the batch")
    others = mates(vocab_size=engine._runner.network.vocab_size, max_tokens=max_tokens)
    alone = record_logits(engine, [request])[request.id]

    for place in places:
        together = record_logits(engine, [*others[:place], request, *others[place:]])[request.id]
        assert torch.equal(together, alone), f"differs at place {place}"


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gemma2", "stablelm"])
def test_tiny_logits_among_mates_equal_those_alone(tiny_folder: Callable[[str], Path], family: str) -> None:
    engine = build_tiny_engine(tiny_folder(family), prefix_caching=False)
    request = greedy_request("mine", random_prompt(150, seed=70), 12)

    check_every_place(engine, request, [0, 1, 15, 30, 31], max_tokens=12)


def test_every_place_among_mates(llama_folder: Path) -> None:
    engine = build_tiny_engine(llama_folder, prefix_caching=False)
    request = greedy_request("mine", random_prompt(20, seed=71), 4)

    check_every_place(engine, request, list(range(NUM_MATES + 1)), max_tokens=4)


def test_prefix_hit_changes_no_bit(llama_folder: Path) -> None:
    engine = build_tiny_engine(llama_folder)
    request = greedy_request("mine", random_prompt(150, seed=72), 8)

    first = record_logits(engine, [request])["mine"]
    again = record_logits(engine, [request])["mine"]

    assert torch.equal(first, again)


@pytest.mark.demo_model
def test_demo_logits_among_mates_equal_those_alone(demo_cache: Path) -> None:
    engine = build_engine(
        EngineConfig(model=DEMO_MODEL, cache_dir=demo_cache, kv_cache_bytes=2**28, prefix_caching=False)
    )
    request = greedy_request("mine", random_prompt(40, seed=73), 5)

    check_every_place(engine, request, [0, 31], max_tokens=5)
