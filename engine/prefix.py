"""Finds full blocks again by what they hold. Knows numbers only, no tensors.

A block's keys depend on all tokens before it, so its name is a hash over its own tokens and
the name of the block before:

    salt --> block 0: H(salt, tokens 0-15) --> block 1: H(name 0, tokens 16-31) --> ...

A hash alone is not trusted: a block is found only if its tokens are equal and it hangs on
the very block that was found before it.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from typing import NamedTuple

#: Bytes of a block's name.
_DIGEST_BYTES = 16


class Link(NamedTuple):
    """The name and the tokens of one full block in a chain."""

    digest: bytes
    tokens: tuple[int, ...]


class CachedBlock:
    """A block whose content can be found."""

    __slots__ = ("block", "link", "parent")

    def __init__(self, block: int, link: Link, parent: CachedBlock | None) -> None:
        self.block = block
        self.link = link
        self.parent = parent


class Prefix(NamedTuple):
    """The leading blocks of a sequence that are in the cache already, first one first."""

    nodes: tuple[CachedBlock, ...]
    num_tokens: int


def salt_digest(*salts: object) -> bytes:
    """The name of an empty prefix; different salts share nothing."""
    return hashlib.blake2b(repr(salts).encode(), digest_size=_DIGEST_BYTES).digest()


def block_digest(parent: bytes, tokens: Sequence[int]) -> bytes:
    """The name of a block that follows the block named `parent`."""
    content = parent + array("q", tokens).tobytes()
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()


def extend_links(
    links: list[Link], token_ids: Sequence[int], *, root: bytes, block_size: int, num_blocks: int
) -> None:
    """Lengthen a chain to its first `num_blocks` full blocks."""
    for index in range(len(links), num_blocks):
        tokens = tuple(token_ids[index * block_size : (index + 1) * block_size])
        parent = links[-1].digest if links else root
        links.append(Link(block_digest(parent, tokens), tokens))


class PrefixMap:
    """The blocks that can be found, one per name."""

    def __init__(self) -> None:
        self._by_digest: dict[bytes, CachedBlock] = {}
        self._by_block: dict[int, CachedBlock] = {}

    def __len__(self) -> int:
        return len(self._by_block)

    def __contains__(self, block: int) -> bool:
        return block in self._by_block

    def find(self, link: Link, parent: CachedBlock | None) -> CachedBlock | None:
        """The block with this content behind that one."""
        found = self._by_digest.get(link.digest)
        if found is None or found.parent is not parent or found.link.tokens != link.tokens:
            return None
        return found

    def put(self, block: int, link: Link, parent: CachedBlock | None) -> tuple[CachedBlock, int | None]:
        """Make a block findable; also returns the block that thereby no longer is.

        The same content may be there already, in another block: that one stays and is returned.
        """
        there = self.find(link, parent)
        if there is not None:
            return there, None
        replaced = self._by_digest.get(link.digest)
        if replaced is not None:
            # Its parent is gone, or the hashes collide: either way nobody would find it.
            del self._by_block[replaced.block]
        node = CachedBlock(block, link, parent)
        self._by_digest[link.digest] = node
        self._by_block[block] = node
        return node, replaced.block if replaced is not None else None

    def forget(self, block: int) -> None:
        """A block is about to hold something else."""
        node = self._by_block.pop(block)
        del self._by_digest[node.link.digest]
