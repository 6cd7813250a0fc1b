"""The cache takes what memory the largest step and the graphs leave, and no more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from engine.device import Work
from engine.protocol import ModelRefused
from engine.tokenizer import Tokenizer
from tests.engine.fake_device import FakeDevice
from tests.engine.overlap_kit import late, make_engine
from tests.engine.toy_network import toy_network


class FullDevice(FakeDevice):
    """One without memory for the largest step."""

    def peak_bytes(self, work: Work) -> int:
        raise torch.OutOfMemoryError("no memory")


@pytest.fixture
def tokenizer(tiny_folder: Callable[[str], Path]) -> Tokenizer:
    return Tokenizer.load(tiny_folder("llama"))


def test_cache_is_what_is_left(tokenizer: Tokenizer) -> None:
    device = FakeDevice(late(0)._chance, memory_bytes=1_000_000)

    engine = make_engine(toy_network(), tokenizer, device, kv_cache_bytes=None, max_num_seqs=5)

    # 5 % are spared; the step takes 200,000 bytes, and graphs of 1, 2, 4 and 5 rows 10,000 each. A block
    # of 16 tokens takes 128 bytes, and one block is nobody's.
    assert engine.limits.num_cache_tokens == (710_000 // 128 - 1) * 16


def test_without_graphs_their_memory_is_the_caches(tokenizer: Tokenizer) -> None:
    device = FakeDevice(late(0)._chance, memory_bytes=1_000_000)

    engine = make_engine(
        toy_network(), tokenizer, device, kv_cache_bytes=None, max_num_seqs=5, cuda_graphs=False
    )

    assert engine.limits.num_cache_tokens == (750_000 // 128 - 1) * 16


def test_no_memory_for_a_cache_is_said_at_start(tokenizer: Tokenizer) -> None:
    device = FakeDevice(late(0)._chance, memory_bytes=240_000)

    with pytest.raises(ModelRefused, match="a step of 261 tokens takes 200000, the graphs take 40000"):
        make_engine(toy_network(), tokenizer, device, kv_cache_bytes=None, max_num_seqs=5)


def test_cache_that_leaves_no_memory_for_a_step_is_refused_at_start(tokenizer: Tokenizer) -> None:
    """The first large step fails, hours later."""
    device = FullDevice(late(0)._chance)

    with pytest.raises(ModelRefused, match=r"a step of 261 tokens; lower .*max_num_batched_tokens"):
        make_engine(toy_network(), tokenizer, device, max_num_seqs=5)
