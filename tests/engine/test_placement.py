"""Where an engine computes, and in which numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.config import EngineConfig
from engine.placement import place

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def config(**settings: Any) -> EngineConfig:
    return EngineConfig(model="any", cache_dir=Path("unused"), **settings)


@pytest.mark.parametrize(
    ("settings", "has_cuda", "expected"),
    [
        ({}, True, (CPU, torch.float32)),
        ({"device": "auto"}, False, (CPU, torch.float32)),
        ({"device": "auto"}, True, (CUDA, torch.bfloat16)),
        ({"device": "auto", "dtype": "float16"}, True, (CUDA, torch.float16)),
        ({"device": "cuda", "dtype": "float32"}, True, (CUDA, torch.float32)),
    ],
)
def test_device_and_numbers(
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, str],
    has_cuda: bool,
    expected: tuple[torch.device, torch.dtype],
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_cuda)

    assert place(config(**settings)) == expected


@pytest.mark.parametrize("settings", [{"device": "cuda"}, {"device": "auto", "dtype": "bfloat16"}])
def test_what_the_machine_lacks_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    with pytest.raises(ValueError, match=r"^(device|dtype) must be"):
        place(config(**settings))


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"device": "tpu"}, "device must be one of auto, cpu, cuda, not tpu"),
        ({"dtype": "int4"}, "dtype must be one of auto, float32, bfloat16, float16, not int4"),
        ({"dtype": "bfloat16"}, "dtype must be float32 on device cpu, not bfloat16"),
        ({"kv_cache_bytes": 0}, "kv_cache_bytes must be at least 1, not 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(settings: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        config(**settings)
