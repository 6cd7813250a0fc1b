"""Owns the keys and values of all sequences: two tensors per layer, addressed by slot."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.block_manager import NULL_BLOCK


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What one layer keeps per token: KV heads, and the widths of a key and of a value."""

    num_heads: int
    key_width: int
    value_width: int

    @property
    def num_elements(self) -> int:
        return self.num_heads * (self.key_width + self.value_width)


class KVCache:
    """Keys [slots, heads, width] and values of every layer.

    Memory is claimed by the system as slots are first written, not at start.
    """

    def __init__(self, layers: dict[int, LayerShape], *, num_blocks: int, block_size: int) -> None:
        # One more than can be booked: the null block.
        num_slots = (num_blocks + 1) * block_size
        self._keys: dict[int, torch.Tensor] = {}
        self._values: dict[int, torch.Tensor] = {}
        null_slots = slice(NULL_BLOCK * block_size, (NULL_BLOCK + 1) * block_size)
        for index, shape in layers.items():
            self._keys[index] = torch.empty(num_slots, shape.num_heads, shape.key_width)
            self._values[index] = torch.empty(num_slots, shape.num_heads, shape.value_width)
            self._keys[index][null_slots] = 0
            self._values[index][null_slots] = 0

    def write(self, layer: int, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Keep keys and values [rows, heads, width] at these slots."""
        self._keys[layer].index_copy_(0, slots, keys)
        self._values[layer].index_copy_(0, slots, values)

    def read(self, layer: int, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values at `slots` [B, L], each [B, L, heads, width]."""
        flat = slots.reshape(-1)
        keys = self._keys[layer].index_select(0, flat)
        values = self._values[layer].index_select(0, flat)
        return keys.view(*slots.shape, *keys.shape[1:]), values.view(*slots.shape, *values.shape[1:])


def count_blocks(layers: dict[int, LayerShape], *, block_size: int, cache_bytes: int) -> int:
    """How many float32 blocks fit into so many bytes, the null block not counted."""
    element_bytes = torch.finfo(torch.float32).bits // 8
    token_bytes = element_bytes * sum(shape.num_elements for shape in layers.values())
    return max(0, cache_bytes // (token_bytes * block_size) - 1)
