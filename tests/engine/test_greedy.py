"""Greedy text equals what transformers generates for each prompt alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.checkpoint import DEMO_MODEL, locate_checkpoint
from engine.config import EngineConfig
from engine.engine import build_engine
from tests.engine.completion import (
    build_tiny_engine,
    generate_alone,
    greedy_request,
    random_prompt,
    run_together,
)

# One token, around a block's end, around a chunk's end, and several chunks.
LENGTHS = (1, 2, 15, 16, 17, 40, 127, 128, 129, 300)


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gemma2", "gpt2", "gpt_oss", "stablelm"])
def test_ragged_prompts_together_equal_generate_alone(
    tiny_folder: Callable[[str], Path], family: str
) -> None:
    folder = tiny_folder(family)
    prompts = [random_prompt(length, seed=1) for length in LENGTHS]
    expected = generate_alone(folder, prompts, max_tokens=20)

    completions = run_together(
        build_tiny_engine(folder), [greedy_request(str(i), ids, 20) for i, ids in enumerate(prompts)]
    )

    assert [completions[str(i)].token_ids for i in range(len(prompts))] == expected
    # The check would be empty if the model said the same whatever it was asked.
    assert len({tuple(tokens) for tokens in expected}) > len(expected) // 2


def test_late_arrivals_and_few_seats_change_nothing(llama_folder: Path) -> None:
    prompts = [random_prompt(length, seed=2) for length in (200, 3, 50, 9, 140, 1, 77)]
    expected = generate_alone(llama_folder, prompts, max_tokens=15)
    engine = build_tiny_engine(llama_folder, max_num_seqs=3)

    tokens: dict[str, list[int]] = {}
    arriving = [greedy_request(str(i), ids, 15) for i, ids in enumerate(prompts)]
    while arriving or engine.has_work():
        if arriving:
            engine.add(arriving.pop(0))
        for output in engine.step():
            tokens.setdefault(output.id, []).extend(output.token_ids)

    assert [tokens[str(i)] for i in range(len(prompts))] == expected


@pytest.mark.demo_model
def test_demo_model_equals_generate_alone(demo_cache: Path) -> None:
    folder = locate_checkpoint(DEMO_MODEL, demo_cache)
    engine = build_engine(EngineConfig(model=DEMO_MODEL, cache_dir=demo_cache, kv_cache_bytes=2**27))
    questions = ("What is the capital of France?", "안녕하세요!", "Write one line about rivers. 🌊")
    prompts = [engine.tokenizer.encode_chat([{"role": "user", "content": text}]) for text in questions]
    expected = generate_alone(folder, prompts, max_tokens=12)

    completions = run_together(engine, [greedy_request(str(i), ids) for i, ids in enumerate(prompts)])

    assert [completions[str(i)].token_ids for i in range(len(prompts))] == expected
    assert "Paris" in completions["0"].text
