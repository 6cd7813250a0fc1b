"""Models shared by the engine's tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from engine.engine import TorchEngine
from engine.kernels import prepare_kernels
from tests.engine.completion import build_tiny_engine
from tests.engine.tiny_model import make_tiny_model


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Tiny matrices gain nothing from more threads, and lose much beside a busy neighbour."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def kept_kernels() -> None:
    """Kernels come compiled from the processes before, also to tests that build no engine."""
    prepare_kernels()


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Builds the tiny model of a family once per run."""
    root = tmp_path_factory.mktemp("tiny-models")

    def folder(family: str) -> Path:
        path = root / family
        return path if path.is_dir() else make_tiny_model(path, family)

    return folder


@pytest.fixture
def llama_folder(tiny_folder: Callable[[str], Path]) -> Path:
    return tiny_folder("llama")


@pytest.fixture
def engine(llama_folder: Path) -> TorchEngine:
    """A fresh engine around the tiny llama."""
    return build_tiny_engine(llama_folder)


@pytest.fixture(scope="session")
def demo_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the converted demo model is kept; a kept folder saves half a minute per run."""
    kept = os.environ.get("HEADRACE_TEST_CACHE")
    return Path(kept) if kept else tmp_path_factory.mktemp("checkpoints")
