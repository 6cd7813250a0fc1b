"""The demo model says the same, bit for bit, at every place of a batch, and what transformers says alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.config import EngineConfig
from engine.engine import build_engine
from tests.engine.completion import generate_alone
from tests.engine.every_place import NUM_MATES, check_places

_NUM_TOKENS = 16


@pytest.mark.slow
@pytest.mark.demo_model
@pytest.mark.timeout(3600)
def test_demo_model_at_every_place(demo_folder: Path, demo_cache: Path) -> None:
    """A greedy text depends on what runs beside it."""
    engine = build_engine(
        EngineConfig(model=str(demo_folder), cache_dir=demo_cache, kv_cache_bytes=2**28, prefix_caching=False)
    )
    chat = [{"role": "user", "content": "Write three lines about a mill by a river."}]
    prompt = engine.tokenizer.encode_chat(chat)

    tokens = check_places(engine, prompt, range(NUM_MATES + 1), max_tokens=_NUM_TOKENS, longest_mate=100)

    assert [tokens] == generate_alone(demo_folder, [prompt], _NUM_TOKENS)
    assert len(tokens) == _NUM_TOKENS
