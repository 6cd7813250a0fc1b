"""How the blocks of one layer lie in memory. Each attention says which layout it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

#: Widths of values are padded to a multiple of this many numbers for the CPU's kernel.
_VALUE_STRETCH = 32

KeysAndValues = tuple[torch.Tensor, torch.Tensor]
Ints = Sequence[int]


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What one layer keeps per token: KV heads, and the widths of a key and of a value."""

    num_heads: int
    key_width: int
    value_width: int


class CacheLayout(Protocol):
    """The shapes of a layer's two tensors, and where in them a token's key and value lie.

    A token's slot is block x block_size + offset.
    """

    def block_shapes(self, shape: LayerShape, block_size: int) -> tuple[Ints, Ints]:
        """The shapes of one block of keys and of one block of values."""
        ...

    def write(
        self,
        kept: KeysAndValues,
        slots: torch.Tensor,
        new: KeysAndValues,
    ) -> None:
        """Put new keys and values [rows, heads, width] at these slots, without asking the device back."""
        ...

    def read(self, kept: KeysAndValues, blocks: torch.Tensor) -> KeysAndValues:
        """A copy of the keys and values of these blocks, [tokens, heads, width]; values may be padded."""
        ...


class HeadMajor:
    """For the CPU: a query meets all slots of a block at once, and whole vectors of a value.

    keys    [block, head, width, slot]
    values  [block, head, slot, width]     width padded
    """

    def block_shapes(self, shape: LayerShape, block_size: int) -> tuple[Ints, Ints]:
        """The shapes of one block of keys and of one block of values."""
        padded = -(-shape.value_width // _VALUE_STRETCH) * _VALUE_STRETCH
        return (shape.num_heads, shape.key_width, block_size), (shape.num_heads, block_size, padded)

    def write(
        self,
        kept: KeysAndValues,
        slots: torch.Tensor,
        new: KeysAndValues,
    ) -> None:
        """Put new keys and values [rows, heads, width] at these slots."""
        (kept_keys, kept_values), (keys, values) = kept, new
        block_size = kept_keys.shape[3]
        blocks = torch.div(slots, block_size, rounding_mode="floor")
        offsets = slots % block_size
        kept_keys[blocks, :, :, offsets] = keys
        kept_values[blocks, :, offsets, : values.shape[2]] = values

    def read(self, kept: KeysAndValues, blocks: torch.Tensor) -> KeysAndValues:
        """A copy of the keys and values of these blocks, [tokens, heads, width]."""
        keys, values = (each[blocks] for each in kept)
        return keys.permute(0, 3, 1, 2).flatten(0, 1), values.transpose(1, 2).flatten(0, 1)


class TokenMajor:
    """For CUDA: what one token keeps lies together, as `varlen_attn` wants it.

    keys and values    [block, slot, head, width]
    """

    def block_shapes(self, shape: LayerShape, block_size: int) -> tuple[Ints, Ints]:
        """The shapes of one block of keys and of one block of values."""
        return (
            (block_size, shape.num_heads, shape.key_width),
            (block_size, shape.num_heads, shape.value_width),
        )

    def write(
        self,
        kept: KeysAndValues,
        slots: torch.Tensor,
        new: KeysAndValues,
    ) -> None:
        """Put new keys and values [rows, heads, width] at these slots."""
        for tensor, rows in zip(kept, new, strict=True):
            tensor.flatten(0, 1).index_copy_(0, slots, rows)

    def read(self, kept: KeysAndValues, blocks: torch.Tensor) -> KeysAndValues:
        """A copy of the keys and values of these blocks, [tokens, heads, width]."""
        keys, values = (each[blocks].flatten(0, 1) for each in kept)
        return keys, values


HEAD_MAJOR: CacheLayout = HeadMajor()
TOKEN_MAJOR: CacheLayout = TokenMajor()
