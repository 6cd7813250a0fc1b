"""Sequences and what a block manager does with them."""

from __future__ import annotations

from typing import Any

from engine.block_manager import BlockManager
from engine.protocol import EngineRequest
from engine.sequence import Sequence

SIZE = 4


def make_sequence(prompt: list[int], max_tokens: int = 4, **settings: Any) -> Sequence:
    return Sequence(EngineRequest(id="a", token_ids=prompt, max_tokens=max_tokens, **settings), arrival=0)


def fill(blocks: BlockManager, sequence: Sequence) -> int:
    """Seat a sequence, compute its prompt and let it go; returns how much of it was found."""
    found = blocks.find_prefix(sequence)
    blocks.seat(sequence, found, num_tokens=sequence.max_num_tokens)
    blocks.commit(sequence, sequence.num_prompt_tokens)
    blocks.release(sequence)
    return found.num_tokens


def found_tokens(blocks: BlockManager, prompt: list[int], **settings: Any) -> int:
    return blocks.find_prefix(make_sequence(prompt, **settings)).num_tokens
