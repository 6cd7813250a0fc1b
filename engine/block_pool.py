"""Who holds which block of the KV cache. Knows numbers only, no tensors.

    free ──take──> held by one or more ──last drop──> fenced ──settle──> free, or idle
                        ^                               |                 if it can be found
                        └──────────── hold ─────────────┴───────────────────┘

A block that nobody holds may still be read by a step that was planned before: it stays
behind a fence until the newest such step is done. Idle blocks keep their content until
nothing else is left; then the one that was used least recently goes first.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable

from engine.prefix import CachedBlock, Link, PrefixMap
from engine.protocol import EngineError

#: The block nobody owns: rows computed for nobody are written here.
NULL_BLOCK = 0


class BlockPool:
    """Blocks 1 to `num_blocks`, each with a count of its holders."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.prefixes = PrefixMap()
        self._free = list(range(num_blocks, NULL_BLOCK, -1))
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._fenced: dict[int, int] = {}
        self._holders = [0] * (num_blocks + 1)
        self._num_held = 0
        self._planned_step = 0
        self._settled_step = 0

    @property
    def num_available_blocks(self) -> int:
        """Blocks that can be taken now."""
        return len(self._free) + len(self._idle)

    @property
    def num_idle_blocks(self) -> int:
        """Blocks that nobody holds but whose content can be found."""
        return len(self._idle)

    @property
    def num_fenced_blocks(self) -> int:
        """Blocks that will be available once the steps under way are done."""
        return len(self._fenced)

    @property
    def has_steps_under_way(self) -> bool:
        return self._planned_step > self._settled_step

    def take(self) -> int:
        """A block of one's own; its content is lost to others."""
        if self._free:
            block = self._free.pop()
        elif self._idle:
            block, _ = self._idle.popitem(last=False)
            self.prefixes.forget(block)
        else:
            raise EngineError(f"none of the {self.num_blocks} cache blocks is free; ask before taking")
        self._holders[block] = 1
        self._num_held += 1
        return block

    def hold(self, block: int) -> None:
        """Share a block that was found."""
        self._holders[block] += 1
        if self._holders[block] == 1:
            self._num_held += 1
            if self._fenced.pop(block, None) is None:
                del self._idle[block]

    def drop(self, block: int) -> None:
        """Give up a hold; after the last one the block can be used anew, behind the fence."""
        if self._holders[block] < 1:
            raise EngineError(f"block {block} was given back twice")
        self._holders[block] -= 1
        if self._holders[block]:
            return
        self._num_held -= 1
        if self.has_steps_under_way:
            self._fenced[block] = self._planned_step
        else:
            self._retire(block)

    def is_idle(self, block: int) -> bool:
        return block in self._idle

    def publish(self, block: int, link: Link, parent: CachedBlock | None) -> CachedBlock:
        """Let others find this block, or learn that its content can be found already."""
        node, replaced = self.prefixes.put(block, link, parent)
        if replaced is not None and replaced in self._idle:
            del self._idle[replaced]
            self._free.append(replaced)
        return node

    def unpublish(self, block: int) -> None:
        """Let nobody find this block any more, nor what hangs on it."""
        if block in self.prefixes:
            self.prefixes.forget(block)
            if block in self._idle:
                del self._idle[block]
                self._free.append(block)

    def plan(self, step: int) -> None:
        """A step was planned; blocks dropped from now on wait for it."""
        self._planned_step = step

    def settle(self, step: int) -> None:
        """A step and all before it are done."""
        self._settled_step = max(self._settled_step, step)
        for block in [block for block, fence in self._fenced.items() if fence <= step]:
            del self._fenced[block]
            self._retire(block)

    def _retire(self, block: int) -> None:
        if block in self.prefixes:
            self._idle[block] = None
        else:
            self._free.append(block)

    def check_idle(self) -> None:
        """Raise EngineError unless nothing is held and nothing is lost; quick, by counts alone."""
        num_known = len(self._free) + len(self._idle) + len(self._fenced)
        if self._num_held or num_known != self.num_blocks:
            raise EngineError(
                f"the cache's books do not balance: nobody is here, but {self._num_held} blocks are held "
                f"and {num_known} of {self.num_blocks} are free, cached or fenced"
            )

    def check_integrity(self, tables: Iterable[list[int]]) -> None:
        """Raise EngineError unless no block is lost or doubled, and each is held as often as counted."""
        held = Counter(block for table in tables for block in table)
        everywhere = sorted([*self._free, *self._idle, *self._fenced, *held])
        counted = {block: count for block, count in enumerate(self._holders) if count}
        if everywhere != list(range(1, self.num_blocks + 1)) or counted != held:
            wrong = sorted(block for block in {*counted, *held} if counted.get(block, 0) != held[block])
            raise EngineError(
                f"the cache's books do not balance: {len(self._free)} free + {len(self._idle)} cached + "
                f"{len(self._fenced)} fenced + {len(held)} used of {self.num_blocks} blocks; "
                f"miscounted holders of {wrong}"
            )
