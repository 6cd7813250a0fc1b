"""Where an engine computes, and in which numbers."""

from __future__ import annotations

import torch

from engine.config import DeviceName, EngineConfig

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def place(config: EngineConfig) -> tuple[torch.device, torch.dtype]:
    """The device and the numbers that the settings mean here; ValueError if there is no such device."""
    device = torch.device(_device_name(config))
    if config.dtype == "auto":
        return device, torch.float32 if device.type == "cpu" else torch.bfloat16
    if device.type == "cpu" and config.dtype != "float32":
        raise ValueError(f"dtype must be float32 on a CPU, not {config.dtype}")
    return device, _DTYPES[config.dtype]


def _device_name(config: EngineConfig) -> DeviceName:
    is_there = torch.cuda.is_available()
    if config.device == "auto":
        return "cuda" if is_there else "cpu"
    if config.device == "cuda" and not is_there:
        raise ValueError(f"device must be cpu: torch {torch.__version__} finds no CUDA device")
    return config.device
