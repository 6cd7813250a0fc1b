"""Hands out blocks of host memory, where preempted sequences keep their content.

A step copies out before it copies back: a block that is read in a step can be written in the
next one at the earliest, so what is given back is free only once the step is planned.
"""

from __future__ import annotations

from engine.protocol import EngineError


class HostPool:
    """Blocks 0 to `num_blocks` - 1 of host memory, each free or kept for one sequence."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._free = list(range(num_blocks - 1, -1, -1))
        self._given_back: list[int] = []

    @property
    def num_used_blocks(self) -> int:
        return self.num_blocks - len(self._free) - len(self._given_back)

    def take(self, num_blocks: int) -> list[int]:
        """So many blocks, or as many as there are."""
        return [self._free.pop() for _ in range(min(num_blocks, len(self._free)))]

    def give_back(self, blocks: list[int]) -> None:
        """Take blocks back from a list and empty it."""
        if len(blocks) > self.num_used_blocks:
            raise EngineError(f"host blocks {blocks} were given back twice")
        self._given_back += reversed(blocks)
        blocks.clear()

    def plan(self) -> None:
        """A step was planned: what was given back before can be used by the next one."""
        self._free += self._given_back
        self._given_back.clear()
