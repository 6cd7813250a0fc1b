"""The cache gives back what was written, through block tables and through host memory."""

from __future__ import annotations

import torch

from engine.cache import KVCache, count_blocks
from engine.cache_layout import LayerShape
from engine.plan import Transfer

SHAPE = LayerShape(num_heads=2, key_width=6, value_width=5)


def filled_cache(
    slots: torch.Tensor, *, num_host_blocks: int = 0
) -> tuple[KVCache, torch.Tensor, torch.Tensor]:
    cache = KVCache({0: SHAPE, 1: SHAPE}, num_blocks=4, block_size=16, num_host_blocks=num_host_blocks)
    keys, values = torch.randn(len(slots), 2, 6), torch.randn(len(slots), 2, 5)
    for layer in (0, 1):
        cache.write(layer, slots, keys + layer, values + layer)
    return cache, keys, values


def test_scattered_slots_are_read_in_order() -> None:
    # Blocks 3 and 1, in that order: 16 positions in the first, 4 in the second.
    slots = torch.cat([torch.arange(48, 64), torch.arange(16, 20)])
    cache, keys, values = filled_cache(slots)

    read_keys, read_values = cache.read(1, torch.tensor([3, 1, 0], dtype=torch.int32), 20)

    assert torch.equal(read_keys, keys + 1)
    assert torch.equal(read_values, values + 1)


def test_block_comes_back_from_host_memory_into_another() -> None:
    cache, keys, values = filled_cache(torch.arange(32, 48), num_host_blocks=2)

    cache.to_host([Transfer(block=2, host_block=1)])
    cache.write(0, torch.arange(32, 48), torch.zeros(16, 2, 6), torch.zeros(16, 2, 5))
    cache.from_host([Transfer(block=4, host_block=1)])

    for layer in (0, 1):
        read_keys, read_values = cache.read(layer, torch.tensor([4]), 16)
        assert torch.equal(read_keys, keys + layer)
        assert torch.equal(read_values, values + layer)


def test_blocks_counted_take_no_more_than_the_bytes_given() -> None:
    num_bytes = 200_000

    num_blocks = count_blocks({0: SHAPE, 1: SHAPE}, block_size=16, cache_bytes=num_bytes)
    cache = KVCache({0: SHAPE, 1: SHAPE}, num_blocks=num_blocks, block_size=16)

    held = sum(tensor.nbytes for layer in (0, 1) for tensor in cache.layer(layer))
    assert held <= num_bytes
    assert held + held // (num_blocks + 1) > num_bytes
