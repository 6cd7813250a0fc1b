"""Blocks that are found again by what they hold, and those that must not be."""

from __future__ import annotations

import random

import pytest

from engine import prefix
from engine.block_manager import BlockManager
from tests.engine.block_kit import SIZE, fill, found_tokens, make_sequence
from tests.engine.paper_engine import PaperEngine


def test_full_blocks_are_found_again_but_never_the_whole_prompt() -> None:
    """A prompt that is cached to its last token leaves nothing to compute."""
    blocks = BlockManager(16, block_size=SIZE)
    prompt = list(range(12))
    fill(blocks, make_sequence(prompt))

    assert found_tokens(blocks, prompt) == 8
    assert found_tokens(blocks, [*prompt, 99]) == 12
    assert found_tokens(blocks, prompt[:11]) == 8
    assert found_tokens(blocks, prompt[:9]) == 8
    assert found_tokens(blocks, prompt[:8]) == 4
    assert found_tokens(blocks, [99, *prompt[1:]]) == 0


def test_blocks_are_found_only_once_they_are_computed() -> None:
    blocks = BlockManager(16, block_size=SIZE)
    prompt = list(range(13))
    sequence = make_sequence(prompt)
    blocks.seat(sequence, blocks.find_prefix(sequence), num_tokens=17)

    before = found_tokens(blocks, prompt)
    blocks.commit(sequence, 6)

    assert before == 0
    assert found_tokens(blocks, prompt) == 4
    blocks.release(sequence)
    # What was never computed is not kept, although its block was held.
    assert found_tokens(blocks, prompt) == 4


def test_generated_tokens_are_found_too() -> None:
    blocks = BlockManager(16, block_size=SIZE)
    sequence = make_sequence([1, 2, 3], max_tokens=8)
    blocks.seat(sequence, blocks.find_prefix(sequence), num_tokens=11)
    for token in (4, 5, 6, 7, 8):
        sequence.append(token)

    blocks.grow(sequence)
    blocks.commit(sequence, 8)

    assert found_tokens(blocks, [1, 2, 3, 4, 5, 6, 7, 8, 9]) == 8
    blocks.release(sequence)


@pytest.mark.parametrize(
    "other", [{"cache_salt": "b"}, {"adapter": "lora"}, {"cache_salt": "a", "adapter": "lora"}]
)
def test_another_salt_or_adapter_finds_nothing(other: dict[str, str]) -> None:
    """Prompts of different adapters or tenants share blocks."""
    blocks = BlockManager(16, block_size=SIZE)
    prompt = list(range(12))
    fill(blocks, make_sequence(prompt, cache_salt="a"))

    assert found_tokens(blocks, prompt, cache_salt="a") == 8
    assert found_tokens(blocks, prompt, **other) == 0
    assert found_tokens(blocks, prompt) == 0


def test_equal_hashes_of_different_tokens_find_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two prompts whose hashes collide are given each other's blocks."""
    monkeypatch.setattr(prefix, "block_digest", lambda parent, tokens: b"the same")
    draw = random.Random(1)
    paper = PaperEngine(num_blocks=30)

    # Every span that is computed on wrong blocks fails here.
    for _ in range(60):
        paper.add([draw.randrange(2) for _ in range(draw.randrange(1, 14))], 6)
        paper.step()
    paper.drain()

    assert len(paper.completions) == 60


def test_few_hashes_for_many_prefixes_find_nothing_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block is found behind another parent than the one it was computed behind."""
    genuine = prefix.block_digest
    monkeypatch.setattr(prefix, "block_digest", lambda parent, tokens: genuine(b"", tokens[:1])[:1])
    draw = random.Random(2)
    paper = PaperEngine(num_blocks=24, block_size=2)

    for _ in range(200):
        paper.add([draw.randrange(3) for _ in range(draw.randrange(1, 14))], 3)
        paper.step()
    paper.drain()

    assert paper.scheduler.figures().num_prefix_hit_tokens > 0


def test_evicted_block_is_not_found_after_its_reuse() -> None:
    """A hash outlives the content it stood for."""
    blocks = BlockManager(4, block_size=SIZE)
    first, second = list(range(9)), list(range(50, 65))
    fill(blocks, make_sequence(first))
    fill(blocks, make_sequence(second, max_tokens=1))

    assert found_tokens(blocks, first) == 0
    assert fill(blocks, make_sequence(first)) == 0
    assert found_tokens(blocks, first) == 8


def test_ends_of_prefixes_are_lost_first() -> None:
    blocks = BlockManager(5, block_size=SIZE)
    fill(blocks, make_sequence(list(range(16)), max_tokens=1))
    taken = make_sequence([9] * 7, max_tokens=1)

    blocks.book(taken)

    assert found_tokens(blocks, [*range(16), 99]) == 12
    blocks.release(taken)
