"""Gives sequences their blocks and takes them back. Knows numbers only, no tensors."""

from __future__ import annotations

from collections.abc import Iterable

from engine.block_pool import NULL_BLOCK, BlockPool
from engine.figures import BlockFigures
from engine.host_pool import HostPool
from engine.plan import Transfer
from engine.prefix import CachedBlock, Prefix, extend_links, salt_digest
from engine.protocol import EngineError
from engine.sequence import Sequence

__all__ = ["NULL_BLOCK", "BlockManager"]


_NOTHING = Prefix(nodes=(), num_tokens=0)


class BlockManager:
    """Block tables over a pool of blocks, with shared prefixes.

    A sequence takes blocks when it is seated and as it grows. Blocks can be promised to it:
    they stay available to nobody else, but keep their cached content until it needs them.
    Without `prefix_caching` only the choices of one request share blocks.
    """

    def __init__(
        self,
        num_blocks: int,
        *,
        block_size: int,
        prefix_caching: bool = True,
        salt: str = "",
        num_host_blocks: int = 0,
    ) -> None:
        self.block_size = block_size
        self.num_blocks = num_blocks
        self._prefix_caching = prefix_caching
        self._salt = salt
        self._pool = BlockPool(num_blocks)
        self._host = HostPool(num_host_blocks)
        self._num_promised = 0
        #: By name of a block: who is computing its content now.
        self._announced: dict[bytes, Sequence] = {}

    @property
    def num_free_blocks(self) -> int:
        """Blocks that are neither held nor promised to anybody."""
        return self._pool.num_available_blocks - self._num_promised

    @property
    def num_fenced_blocks(self) -> int:
        """Blocks that will be free once the steps under way are done."""
        return self._pool.num_fenced_blocks

    @property
    def has_steps_under_way(self) -> bool:
        return self._pool.has_steps_under_way

    @property
    def num_cache_tokens(self) -> int:
        """Token positions in the whole cache."""
        return self.num_blocks * self.block_size

    def blocks_for(self, num_tokens: int) -> int:
        """How many blocks so many tokens fill, the last one perhaps in part."""
        return -(-num_tokens // self.block_size)

    def find_prefix(self, sequence: Sequence) -> Prefix:
        """The longest known prefix, in full blocks and short of the newest token, which must be computed."""
        limit = self._num_shareable(sequence)
        if not limit:
            return _NOTHING
        self._name_blocks(sequence, limit)
        nodes: list[CachedBlock] = []
        for link in sequence.links[:limit]:
            found = self._pool.prefixes.find(link, nodes[-1] if nodes else None)
            if found is None:
                break
            nodes.append(found)
        return Prefix(tuple(nodes), len(nodes) * self.block_size)

    def awaits_prefix(self, sequence: Sequence, prefix: Prefix) -> bool:
        """Whether somebody no less urgent is computing the very block that comes next."""
        index = len(prefix.nodes)
        if index >= self._num_shareable(sequence):
            return False
        holder = self._announced.get(sequence.links[index].digest)
        return holder is not None and holder.priority <= sequence.priority

    def num_missing_blocks(self, prefix: Prefix, num_tokens: int) -> int:
        """Free blocks it takes to hold so many tokens: found ones count if nobody holds them now."""
        idle = sum(self._pool.is_idle(node.block) for node in prefix.nodes)
        return self.blocks_for(num_tokens) - len(prefix.nodes) + idle

    def seat(self, sequence: Sequence, prefix: Prefix, *, num_tokens: int) -> list[Transfer]:
        """Give a sequence blocks for its known tokens and promise it the rest up to `num_tokens`.

        What it shares or brings back from host memory counts as computed. Returns what has to
        be brought back before anything is computed.
        """
        if sequence.block_table:
            raise EngineError(f"{sequence!r} already has its blocks")
        if self.num_missing_blocks(prefix, num_tokens) > self.num_free_blocks:
            raise EngineError(f"no blocks left for {sequence!r}; ask num_missing_blocks first")
        for node in prefix.nodes:
            self._pool.hold(node.block)
            sequence.block_table.append(node.block)
        while len(sequence.block_table) < self.blocks_for(sequence.num_known_tokens):
            sequence.block_table.append(self._pool.take())
        sequence.num_promised_blocks = max(0, self.blocks_for(num_tokens) - len(sequence.block_table))
        self._num_promised += sequence.num_promised_blocks
        sequence.num_committed_blocks = len(prefix.nodes)
        sequence.committed = prefix.nodes[-1] if prefix.nodes else None
        sequence.num_computed_tokens = sequence.num_stored_tokens = prefix.num_tokens
        transfers = self._bring_back(sequence)
        self._announce(sequence)
        return transfers

    def book(self, sequence: Sequence) -> None:
        """Give the sequence all the blocks it may ever need at once, none of them shared."""
        self.seat(sequence, _NOTHING, num_tokens=sequence.max_num_tokens)
        while sequence.num_promised_blocks:
            self.grow(sequence)

    def grow(self, sequence: Sequence) -> bool:
        """One more block, a promised one if there is any; False if none is free."""
        if sequence.num_promised_blocks:
            sequence.num_promised_blocks -= 1
            self._num_promised -= 1
        elif self.num_free_blocks < 1:
            return False
        sequence.block_table.append(self._pool.take())
        return True

    def commit(self, sequence: Sequence, num_tokens: int) -> None:
        """The first `num_tokens` of the sequence are in the cache: full blocks can be found from now on."""
        sequence.num_stored_tokens = num_tokens
        num_full = num_tokens // self.block_size
        if num_full <= sequence.num_committed_blocks or not self._shares(sequence):
            return
        self._name_blocks(sequence, num_full)
        for index in range(sequence.num_committed_blocks, num_full):
            link = sequence.links[index]
            sequence.committed = self._pool.publish(sequence.block_table[index], link, sequence.committed)
            if self._announced.get(link.digest) is sequence:
                del self._announced[link.digest]
        sequence.num_committed_blocks = num_full

    def preempt(self, sequence: Sequence) -> list[Transfer]:
        """Take the blocks back; what host memory has room for is kept there, from the first one on."""
        num_tokens = sequence.num_computed_tokens
        sequence.host_blocks = self._host.take(self.blocks_for(num_tokens))
        sequence.num_host_tokens = min(num_tokens, len(sequence.host_blocks) * self.block_size)
        pairs = zip(sequence.block_table, sequence.host_blocks, strict=False)
        transfers = [Transfer(*pair) for pair in pairs]
        self._leave(sequence)
        return transfers

    def release(self, sequence: Sequence, *, spoiled: bool = False) -> None:
        """Take back whatever the sequence has; what is spoiled is not found again."""
        self._forget_host(sequence)
        for block in sequence.block_table if spoiled else ():
            self._pool.unpublish(block)
        self._leave(sequence)

    def plan(self, step: int) -> None:
        """A step was planned: blocks given up from now on are not used anew before it is done."""
        self._pool.plan(step)
        self._host.plan()

    def settle(self, step: int) -> None:
        """A step and all before it are done."""
        self._pool.settle(step)

    def figures(self, holders: Iterable[Sequence]) -> BlockFigures:
        slots = sum(len(each.block_table) * self.block_size - each.num_computed_tokens for each in holders)
        return BlockFigures(
            num_blocks=self.num_blocks,
            num_free_blocks=self._pool.num_available_blocks - self._pool.num_idle_blocks,
            num_cached_blocks=self._pool.num_idle_blocks,
            num_used_blocks=self.num_blocks - self._pool.num_available_blocks,
            num_unused_slots=slots,
            num_used_host_blocks=self._host.num_used_blocks,
        )

    def check_idle(self) -> None:
        """Raise EngineError unless nobody holds or is promised anything; quick."""
        self._pool.check_idle()
        if self._num_promised or self._announced or self._host.num_used_blocks:
            raise EngineError(
                f"nobody is here, but {self._num_promised} blocks are promised, {len(self._announced)} "
                f"announced and {self._host.num_used_blocks} kept in host memory"
            )

    def check_integrity(self, holders: list[Sequence]) -> None:
        """Raise EngineError unless free, cached and used blocks are all there are, held by these alone."""
        self._pool.check_integrity(sequence.block_table for sequence in holders)
        promised = sum(sequence.num_promised_blocks for sequence in holders)
        if promised != self._num_promised:
            raise EngineError(f"{self._num_promised} blocks are promised, but only {promised} to anybody")

    def _shares(self, sequence: Sequence) -> bool:
        return self._prefix_caching or sequence.request.n > 1

    def _num_shareable(self, sequence: Sequence) -> int:
        if not self._shares(sequence):
            return 0
        return (len(sequence.token_ids) - 1) // self.block_size

    def _name_blocks(self, sequence: Sequence, num_blocks: int) -> None:
        if len(sequence.links) < num_blocks:
            request = sequence.request
            private = None if self._prefix_caching else sequence.arrival
            root = salt_digest(self._salt, request.adapter, request.cache_salt, private)
            size = self.block_size
            extend_links(
                sequence.links, sequence.token_ids, root=root, block_size=size, num_blocks=num_blocks
            )

    def _announce(self, sequence: Sequence) -> None:
        sequence.num_announced_blocks = self._num_shareable(sequence)
        for link in sequence.links[sequence.num_committed_blocks : sequence.num_announced_blocks]:
            self._announced.setdefault(link.digest, sequence)

    def _bring_back(self, sequence: Sequence) -> list[Transfer]:
        first, kept = sequence.num_committed_blocks, sequence.num_host_tokens
        transfers = [
            Transfer(sequence.block_table[index], sequence.host_blocks[index])
            for index in range(first, self.blocks_for(kept))
        ]
        sequence.num_computed_tokens = max(sequence.num_computed_tokens, kept)
        self._forget_host(sequence)
        return transfers

    def _forget_host(self, sequence: Sequence) -> None:
        self._host.give_back(sequence.host_blocks)
        sequence.num_host_tokens = 0

    def _leave(self, sequence: Sequence) -> None:
        for link in sequence.links[sequence.num_committed_blocks : sequence.num_announced_blocks]:
            if self._announced.get(link.digest) is sequence:
                del self._announced[link.digest]
        self._num_promised -= sequence.num_promised_blocks
        # Reversed, so that of what can be found the ends of prefixes are lost first.
        for block in reversed(sequence.block_table):
            self._pool.drop(block)
        sequence.leave_blocks()
