"""Hands out the blocks of the KV cache. Knows numbers only, no tensors."""

from __future__ import annotations

from engine.protocol import EngineError
from engine.sequence import Sequence

#: The block nobody owns: reads past the end of a sequence land there, and it stays zero.
NULL_BLOCK = 0


class BlockManager:
    """Blocks 1 to `num_blocks`, each free or in exactly one block table."""

    def __init__(self, num_blocks: int, *, block_size: int) -> None:
        self.block_size = block_size
        self.num_blocks = num_blocks
        self._free = list(range(num_blocks, NULL_BLOCK, -1))

    @property
    def num_free_blocks(self) -> int:
        return len(self._free)

    @property
    def num_cache_tokens(self) -> int:
        """Token positions in the whole cache."""
        return self.num_blocks * self.block_size

    def blocks_for(self, num_tokens: int) -> int:
        """How many blocks so many tokens fill, the last one perhaps in part."""
        return -(-num_tokens // self.block_size)

    def can_book(self, sequence: Sequence) -> bool:
        """Whether everything this sequence may ever need is free now."""
        return self.blocks_for(sequence.max_num_tokens) <= self.num_free_blocks

    def book(self, sequence: Sequence) -> None:
        """Give the sequence all the blocks it may ever need, so that it never has to pause."""
        if sequence.block_table:
            raise EngineError(f"{sequence!r} already has its blocks")
        if not self.can_book(sequence):
            raise EngineError(f"no blocks left for {sequence!r}; ask can_book first")
        for _ in range(self.blocks_for(sequence.max_num_tokens)):
            sequence.block_table.append(self._free.pop())

    def release(self, sequence: Sequence) -> None:
        """Take the sequence's blocks back; harmless if it has none."""
        # Reversed, so that the next booking gets them in the order they had.
        self._free.extend(reversed(sequence.block_table))
        sequence.block_table.clear()

    def check_integrity(self, holders: list[Sequence]) -> None:
        """Raise EngineError unless every block is free or held once, and none is lost."""
        held = [block for sequence in holders for block in sequence.block_table]
        seen = sorted(held + self._free)
        if seen != list(range(1, self.num_blocks + 1)):
            raise EngineError(
                f"the cache's books do not balance: {len(self._free)} free + {len(held)} used "
                f"of {self.num_blocks} blocks, {len(seen) - len(set(seen))} counted twice"
            )
