"""Owns the keys and values of all sequences: two tensors per layer, in blocks.

Block 0 is the null block: it belongs to nobody, and rows computed for nobody write there.
Beside the blocks on the device there may be blocks of host memory, one row each:

    host block    [ keys of layer 0 | values of layer 0 | keys of layer 1 | ... ]
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch

from engine.cache_layout import HEAD_MAJOR, CacheLayout, Ints, KeysAndValues, LayerShape
from engine.plan import Transfer

#: Bytes on the device through which blocks travel to and from host memory.
_STAGING_BYTES = 32 * 2**20


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


class _Load(NamedTuple):
    """Some blocks on their way: where they lie on the device, and which rows of the staging
    memory are which host blocks."""

    blocks: torch.Tensor
    staged: torch.Tensor
    runs: tuple[tuple[slice, slice], ...]


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
        for load in self._loads(transfers):
            for kept, columns in self._columns():
                load.staged[:, columns] = kept.flatten(1)[load.blocks]
            for rows, host_rows in load.runs:
                self._host_blocks[host_rows].copy_(load.staged[rows], non_blocking=True)

    def from_host(self, transfers: Iterable[Transfer]) -> None:
        """Copy blocks back from host memory; queued as in `to_host`."""
        for load in self._loads(transfers):
            for rows, host_rows in load.runs:
                load.staged[rows].copy_(self._host_blocks[host_rows], non_blocking=True)
            for kept, columns in self._columns():
                kept.flatten(1).index_copy_(0, load.blocks, load.staged[:, columns])

    def _loads(self, transfers: Iterable[Transfer]) -> Iterator[_Load]:
        """The transfers in loads that fit the staging memory, each in the order of its host blocks."""
        moves = sorted(transfers, key=lambda move: move.host_block)
        num_elements = self._host_blocks.shape[1]
        size = max(1, _STAGING_BYTES // (num_elements * self._format.dtype.itemsize))
        for first in range(0, len(moves), size):
            some = moves[first : first + size]
            staged = torch.empty(
                len(some), num_elements, dtype=self._format.dtype, device=self._format.device
            )
            runs = tuple(_runs([move.host_block for move in some]))
            yield _Load(self._index([move.block for move in some]), staged, runs)

    def _columns(self) -> Iterator[tuple[torch.Tensor, slice]]:
        """Every tensor and where in a host block its content lies."""
        first = 0
        for kept in chain.from_iterable(self._blocks.values()):
            end = first + kept[0].numel()
            yield kept, slice(first, end)
            first = end

    def _index(self, blocks: list[int]) -> torch.Tensor:
        index = torch.tensor(blocks)
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


def _runs(numbers: list[int]) -> Iterator[tuple[slice, slice]]:
    """Where sorted numbers follow each other without a gap: their places in the list, and themselves."""
    first = 0
    for end in range(1, len(numbers) + 1):
        if end == len(numbers) or numbers[end] != numbers[end - 1] + 1:
            yield slice(first, end), slice(numbers[first], numbers[end - 1] + 1)
            first = end


def _unwritten(shape: Ints, dtype: torch.dtype) -> torch.Tensor:
    """CPU memory that is claimed when it is first written."""
    # numpy asks the system for huge pages, torch does not; it has no bfloat16, hence integers.
    return torch.from_numpy(np.empty(shape, dtype=f"i{dtype.itemsize}")).view(dtype)
