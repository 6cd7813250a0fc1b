"""The settings of a worker reach its engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from engine.config import EngineConfig
from models.settings import Settings
from worker.engine_config import engine_config

#: What the engine's own configuration has under another name, or not as a setting.
_ELSEWHERE = {"cache_dir"}


@pytest.mark.parametrize(
    "given",
    [
        {"quantize": "int8"},
        {"device": "cuda", "dtype": "float16", "attention": "triton"},
        {"overlap": False, "cuda_graphs": False, "half_batches": True},
        {"batching": "static"},
        {"batching": "window", "block_size": 32},
        {"admission": "optimistic", "host_cache_bytes": 2**20},
        {"prefix_caching": False},
        {"kv_cache_bytes": 2**22, "max_num_seqs": 3, "num_threads": 2, "max_model_len": 100},
    ],
)
def test_what_is_set_reaches_the_engine(settings: Callable[..., Settings], given: dict[str, Any]) -> None:
    config = engine_config(settings(**given))

    assert {name: getattr(config, name) for name in given} == given


def test_what_is_not_set_is_as_the_engine_has_it(settings: Callable[..., Settings]) -> None:
    config = engine_config(settings())
    own = EngineConfig(model=config.model, cache_dir=config.cache_dir)

    assert config == own


def test_every_field_of_the_engine_is_a_setting() -> None:
    names = {field.name for field in fields(EngineConfig)} - _ELSEWHERE

    assert names <= set(Settings.model_fields)
