"""A tiny model for the benchmarks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.engine.tiny_gguf import write_tiny_gguf
from tests.engine.tiny_model import make_tiny_model


@pytest.fixture(scope="session")
def llama_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("bench") / "llama")


@pytest.fixture(scope="session")
def tiny_gguf(llama_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model as a GGUF file."""
    return write_tiny_gguf(llama_folder, tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Tiny matrices gain nothing from more threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
