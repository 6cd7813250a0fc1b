"""Owns the keys and values of all sequences: two tensors per layer, in blocks.

    keys    [block, head, width, slot]     a query meets all slots of a block at once
    values  [block, head, slot, width]     width padded, so that whole vectors are read

A token's slot is block x block_size + offset. Block 0 is the null block: it belongs to
nobody, and rows computed for nobody write there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from engine.plan import Transfer

#: Widths of values are padded to a multiple of this many numbers.
_VALUE_STRETCH = 32


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What one layer keeps per token: KV heads, and the widths of a key and of a value."""

    num_heads: int
    key_width: int
    value_width: int

    @property
    def padded_value_width(self) -> int:
        return -(-self.value_width // _VALUE_STRETCH) * _VALUE_STRETCH

    @property
    def num_elements(self) -> int:
        return self.num_heads * (self.key_width + self.padded_value_width)


class KVCache:
    """Keys and values of every layer, in float32, with `num_host_blocks` of host memory beside.

    Memory is claimed by the system as blocks are first written, not at start.
    """

    def __init__(
        self,
        layers: Mapping[int, LayerShape],
        *,
        num_blocks: int,
        block_size: int,
        num_host_blocks: int = 0,
    ) -> None:
        self.block_size = block_size
        self._layers = dict(layers)
        # One more than can be booked: the null block.
        self._blocks = self._allocate(num_blocks + 1)
        self._host_blocks = self._allocate(num_host_blocks)

    def _allocate(self, num_blocks: int) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
        return {
            index: (
                _unwritten(num_blocks, shape.num_heads, shape.key_width, self.block_size),
                _unwritten(num_blocks, shape.num_heads, self.block_size, shape.padded_value_width),
            )
            for index, shape in self._layers.items()
        }

    def layer(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of one layer, as they lie."""
        return self._blocks[index]

    def write(self, layer: int, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Keep keys and values [rows, heads, width] at these slots."""
        blocks = torch.div(slots, self.block_size, rounding_mode="floor")
        offsets = slots % self.block_size
        kept_keys, kept_values = self._blocks[layer]
        kept_keys[blocks, :, :, offsets] = keys
        kept_values[blocks, :, offsets, : values.shape[2]] = values

    def read(self, layer: int, block_table: torch.Tensor, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """A copy of a sequence's first `length` keys and values, each [length, heads, width]."""
        blocks = block_table[: -(-length // self.block_size)].long()
        keys, values = (kept[blocks] for kept in self._blocks[layer])
        values = values[..., : self._layers[layer].value_width]
        return keys.permute(0, 3, 1, 2).flatten(0, 1)[:length], values.transpose(1, 2).flatten(0, 1)[:length]

    def to_host(self, transfers: Iterable[Transfer]) -> None:
        """Copy blocks out to host memory, all layers of each."""
        for block, host_block in transfers:
            for layer, kept in self._blocks.items():
                for source, target in zip(kept, self._host_blocks[layer], strict=True):
                    target[host_block].copy_(source[block])

    def from_host(self, transfers: Iterable[Transfer]) -> None:
        """Copy blocks back from host memory."""
        for block, host_block in transfers:
            for layer, kept in self._host_blocks.items():
                for source, target in zip(kept, self._blocks[layer], strict=True):
                    target[block].copy_(source[host_block])


def count_blocks(layers: Mapping[int, LayerShape], *, block_size: int, cache_bytes: int) -> int:
    """How many float32 blocks fit into so many bytes, the null block not counted."""
    element_bytes = torch.finfo(torch.float32).bits // 8
    token_bytes = element_bytes * sum(shape.num_elements for shape in layers.values())
    return max(0, cache_bytes // (token_bytes * block_size) - 1)


def _unwritten(*shape: int) -> torch.Tensor:
    # numpy asks the system for huge pages, torch does not.
    return torch.from_numpy(np.empty(shape, dtype=np.float32))
