"""Logits in float32 are the same, bit for bit, alone and among others, at every place of the batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from engine.checkpoint import DEMO_MODEL
from engine.config import EngineConfig
from engine.engine import build_engine
from tests.engine.completion import build_tiny_engine, generate_alone, greedy_request, random_prompt
from tests.engine.every_place import NUM_MATES, check_places
from tests.engine.logit_recorder import record_logits


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gemma2", "stablelm"])
def test_tiny_logits_among_mates_equal_those_alone(tiny_folder: Callable[[str], Path], family: str) -> None:
    engine = build_tiny_engine(tiny_folder(family), prefix_caching=False)

    check_places(engine, random_prompt(150, seed=70), [0, 1, 15, 30, 31], max_tokens=12)


def test_tiny_logits_at_every_place_equal_those_alone(llama_folder: Path) -> None:
    """A greedy text depends on what runs beside it."""
    engine = build_tiny_engine(llama_folder, prefix_caching=False)
    prompt = random_prompt(20, seed=71)

    tokens = check_places(engine, prompt, range(NUM_MATES + 1), max_tokens=4)

    assert [tokens] == generate_alone(llama_folder, [prompt], 4)
    assert len(tokens) == 4


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

    check_places(engine, random_prompt(40, seed=73), [13, 31], max_tokens=3, longest_mate=40)
