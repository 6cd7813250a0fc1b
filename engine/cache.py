"""Owns the keys and values of all sequences: two tensors per layer, in blocks.

Block 0 is the null block: it belongs to nobody, and rows computed for nobody write there.
Beside the blocks on the device there may be blocks of host memory, one row each:

    host block    [ keys of layer 0 | values of layer 0 | keys of layer 1 | ... ]
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from engine.cache_layout import HEAD_MAJOR, CacheLayout, Ints, KeysAndValues, LayerShape
from engine.plan import Transfer


@dataclass(frozen=True, slots=True)
class CacheFormat:
    """In which layout, as which numbers and where keys and values are kept."""

    layout: CacheLayout = HEAD_MAJOR
    dtype: torch.dtype = torch.float32
    device: torch.device = torch.device("cpu")  # noqa: RUF009 - immutable

    def empty(self, *shape: int) -> torch.Tensor:
        """Memory on the device; on a CPU the system gives it as it is first written."""
        if self.device.type == "cpu":
            return _unwritten(shape, self.dtype)
        # What no sequence has written yet must not look like an overflow to a kernel that reads too far.
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    def empty_on_host(self, *shape: int) -> torch.Tensor:
        """Host memory that the device can copy from and to by itself."""
        if self.device.type == "cpu":
            return _unwritten(shape, self.dtype)
        return torch.empty(shape, dtype=self.dtype, pin_memory=True)


class KVCache:
    """Keys and values of every layer, with `num_host_blocks` of host memory beside."""

    def __init__(
        self,
        layers: Mapping[int, LayerShape],
        *,
        num_blocks: int,
        block_size: int,
        num_host_blocks: int = 0,
        format: CacheFormat | None = None,
    ) -> None:
        self.block_size = block_size
        self._format = format or CacheFormat()
        self._layers = dict(layers)
        self._blocks: dict[int, KeysAndValues] = {}
        for index, shape in self._layers.items():
            keys, values = self._format.layout.block_shapes(shape, block_size)
            # One more than can be booked: the null block.
            self._blocks[index] = (
                self._format.empty(num_blocks + 1, *keys),
                self._format.empty(num_blocks + 1, *values),
            )
        self._host_blocks = self._format.empty_on_host(
            num_host_blocks, _count_elements(self._layers, block_size, self._format.layout)
        )

    def layer(self, index: int) -> KeysAndValues:
        """Keys and values of one layer, as they lie."""
        return self._blocks[index]

    def write(self, layer: int, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Keep keys and values [rows, heads, width] at these slots; the host does not wait for it."""
        self._format.layout.write(self._blocks[layer], slots, (keys, values))

    def read(self, layer: int, block_table: torch.Tensor, length: int) -> KeysAndValues:
        """A copy of a sequence's first `length` keys and values, each [length, heads, width]."""
        blocks = block_table[: -(-length // self.block_size)].long()
        keys, values = self._format.layout.read(self._blocks[layer], blocks)
        return keys[:length], values[:length, :, : self._layers[layer].value_width]

    def to_host(self, transfers: Iterable[Transfer]) -> None:
        """Copy blocks out to host memory, all layers of each.

        On CUDA this is queued on the current stream, like everything else here.
        """
        moves = sorted(transfers, key=lambda move: move.host_block)
        if not moves:
            return
        blocks = self._index(move.block for move in moves)
        staged = torch.cat([kept.flatten(1)[blocks] for kept in self._tensors()], dim=1)
        for first, end in _runs([move.host_block for move in moves]):
            place = moves[first].host_block
            self._host_blocks[place : place + end - first].copy_(staged[first:end], non_blocking=True)

    def from_host(self, transfers: Iterable[Transfer]) -> None:
        """Copy blocks back from host memory; queued as in `to_host`."""
        moves = sorted(transfers, key=lambda move: move.host_block)
        if not moves:
            return
        blocks = self._index(move.block for move in moves)
        staged = torch.cat(
            [
                self._host_blocks[moves[first].host_block :][: end - first].to(
                    self._format.device, non_blocking=True
                )
                for first, end in _runs([move.host_block for move in moves])
            ]
        )
        column = 0
        for kept in self._tensors():
            flat = kept.flatten(1)
            flat.index_copy_(0, blocks, staged[:, column : column + flat.shape[1]])
            column += flat.shape[1]

    def _tensors(self) -> Iterator[torch.Tensor]:
        for kept in self._blocks.values():
            yield from kept

    def _index(self, blocks: Iterable[int]) -> torch.Tensor:
        index = torch.tensor(list(blocks))
        if self._format.device.type == "cpu":
            return index
        # From pageable memory the copy would wait for the device.
        return index.pin_memory().to(self._format.device, non_blocking=True)


def count_blocks(
    layers: Mapping[int, LayerShape],
    *,
    block_size: int,
    cache_bytes: int,
    format: CacheFormat | None = None,
) -> int:
    """How many blocks fit into so many bytes, the null block not counted."""
    format = format or CacheFormat()
    block_bytes = format.dtype.itemsize * _count_elements(layers, block_size, format.layout)
    return max(0, cache_bytes // block_bytes - 1)


def _count_elements(layers: Mapping[int, LayerShape], block_size: int, layout: CacheLayout) -> int:
    """Numbers in one block of all layers."""
    return sum(
        math.prod(each) for shape in layers.values() for each in layout.block_shapes(shape, block_size)
    )


def _runs(numbers: Ints) -> Iterator[tuple[int, int]]:
    """The places [first, end) between which sorted numbers follow each other without a gap."""
    first = 0
    for at in range(1, len(numbers) + 1):
        if at == len(numbers) or numbers[at] != numbers[at - 1] + 1:
            yield first, at
            first = at


def _unwritten(shape: Ints, dtype: torch.dtype) -> torch.Tensor:
    """CPU memory that is claimed when it is first written."""
    # numpy asks the system for huge pages, torch does not; it has no bfloat16, hence integers.
    return torch.from_numpy(np.empty(shape, dtype=f"i{dtype.itemsize}")).view(dtype)
