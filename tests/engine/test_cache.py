"""The cache gives back what was written, through block tables and through host memory."""

from __future__ import annotations

import pytest
import torch

from engine.cache import CacheFormat, KVCache, count_blocks
from engine.cache_layout import HEAD_MAJOR, TOKEN_MAJOR, LayerShape
from engine.plan import Transfer

SHAPE = LayerShape(num_heads=2, key_width=6, value_width=5)
FORMATS = [
    CacheFormat(HEAD_MAJOR),
    CacheFormat(TOKEN_MAJOR),
    CacheFormat(TOKEN_MAJOR, torch.bfloat16),
]

both_layouts = pytest.mark.parametrize("format", FORMATS, ids=["head major", "token major", "bfloat16"])


def filled_cache(
    slots: torch.Tensor, format: CacheFormat, *, num_host_blocks: int = 0
) -> tuple[KVCache, torch.Tensor, torch.Tensor]:
    cache = KVCache(
        {0: SHAPE, 1: SHAPE}, num_blocks=4, block_size=16, num_host_blocks=num_host_blocks, format=format
    )
    keys, values = torch.randn(len(slots), 2, 6), torch.randn(len(slots), 2, 5)
    keys, values = keys.to(format.dtype), values.to(format.dtype)
    for layer in (0, 1):
        cache.write(layer, slots, keys + layer, values + layer)
    return cache, keys, values


@both_layouts
def test_scattered_slots_are_read_in_order(format: CacheFormat) -> None:
    # Blocks 3 and 1, in that order: 16 positions in the first, 4 in the second.
    slots = torch.cat([torch.arange(48, 64), torch.arange(16, 20)])
    cache, keys, values = filled_cache(slots, format)

    read_keys, read_values = cache.read(1, torch.tensor([3, 1, 0], dtype=torch.int32), 20)

    assert torch.equal(read_keys, keys + 1)
    assert torch.equal(read_values, values + 1)


@both_layouts
def test_block_comes_back_from_host_memory_into_another(format: CacheFormat) -> None:
    cache, keys, values = filled_cache(torch.arange(32, 48), format, num_host_blocks=2)

    cache.to_host([Transfer(block=2, host_block=1)])
    nothing = torch.zeros(16, 2, 6, dtype=format.dtype)
    cache.write(0, torch.arange(32, 48), nothing, nothing[..., :5])
    cache.from_host([Transfer(block=4, host_block=1)])

    for layer in (0, 1):
        read_keys, read_values = cache.read(layer, torch.tensor([4]), 16)
        assert torch.equal(read_keys, keys + layer)
        assert torch.equal(read_values, values + layer)


@both_layouts
def test_many_blocks_move_at_once_each_to_its_own_place(format: CacheFormat) -> None:
    # The tokens of blocks 1 to 4, to be turned round by way of host blocks with a gap between.
    cache, keys, _ = filled_cache(torch.arange(16, 80), format, num_host_blocks=6)
    host_blocks = {1: 5, 2: 0, 3: 1, 4: 3}

    cache.to_host(Transfer(block, host_block) for block, host_block in host_blocks.items())
    cache.from_host(Transfer(5 - block, host_block) for block, host_block in host_blocks.items())

    read_keys, _ = cache.read(1, torch.tensor([4, 3, 2, 1]), 64)
    assert torch.equal(read_keys, keys + 1)


def test_no_transfers_move_nothing() -> None:
    cache, keys, _ = filled_cache(torch.arange(16, 32), FORMATS[0])

    cache.to_host([])
    cache.from_host([])

    assert torch.equal(cache.read(0, torch.tensor([1]), 16)[0], keys)


def test_rows_of_padding_may_share_a_slot() -> None:
    cache, keys, _ = filled_cache(torch.tensor([20, 0, 0, 0]), FORMATS[1])

    assert torch.equal(cache.layer(0)[0][1, 4], keys[0])


@both_layouts
def test_blocks_counted_take_no_more_than_the_bytes_given(format: CacheFormat) -> None:
    num_bytes = 200_000
    layers = {0: SHAPE, 1: SHAPE}

    num_blocks = count_blocks(layers, block_size=16, cache_bytes=num_bytes, format=format)
    cache = KVCache(layers, num_blocks=num_blocks, block_size=16, format=format)

    held = sum(tensor.nbytes for layer in (0, 1) for tensor in cache.layer(layer))
    assert held <= num_bytes
    assert held + held // (num_blocks + 1) > num_bytes


def test_half_as_wide_numbers_leave_room_for_twice_the_blocks() -> None:
    # 16 tokens x 2 heads x (6 + 5) numbers: 1,408 bytes in float32 and 704 in bfloat16, less the null block.
    sizes = [
        count_blocks({0: SHAPE}, block_size=16, cache_bytes=14_080, format=CacheFormat(TOKEN_MAJOR, dtype))
        for dtype in (torch.float32, torch.bfloat16)
    ]

    assert sizes == [9, 19]
