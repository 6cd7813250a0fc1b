"""The books of the cache: who holds which block, and when it is free."""

from __future__ import annotations

import pytest

from engine.block_manager import BlockManager
from engine.protocol import EngineError
from tests.engine.block_kit import SIZE, fill, make_sequence


def test_found_blocks_that_nobody_holds_count_as_taken() -> None:
    """Admission counts a found block as free and as found, and runs out of blocks."""
    blocks = BlockManager(4, block_size=SIZE)
    fill(blocks, make_sequence(list(range(9))))
    holder = make_sequence([8], max_tokens=3)
    blocks.book(holder)

    sequence = make_sequence(list(range(9)), max_tokens=7)
    found = blocks.find_prefix(sequence)

    assert found.num_tokens == 8
    assert blocks.num_free_blocks == 3
    assert blocks.num_missing_blocks(found, 16) == 4
    with pytest.raises(EngineError, match="no blocks left"):
        blocks.seat(sequence, found, num_tokens=16)


def test_shared_blocks_are_held_until_the_last_holder_leaves() -> None:
    blocks = BlockManager(8, block_size=SIZE)
    prompt = list(range(9))
    fill(blocks, make_sequence(prompt))
    holders = [make_sequence(prompt) for _ in range(2)]
    for holder in holders:
        blocks.seat(holder, blocks.find_prefix(holder), num_tokens=12)

    assert holders[0].block_table[:2] == holders[1].block_table[:2]
    assert holders[0].block_table[2] != holders[1].block_table[2]
    blocks.check_integrity(holders)
    blocks.release(holders[0])
    blocks.check_integrity(holders[1:])
    blocks.release(holders[1])
    blocks.check_idle()


def test_blocks_wait_for_the_steps_under_way() -> None:
    """A block is given to another sequence while a step under way still reads it."""
    blocks = BlockManager(3, block_size=SIZE, prefix_caching=False)
    sequence = make_sequence(list(range(9)), max_tokens=1)
    blocks.book(sequence)
    blocks.plan(1)
    blocks.plan(2)

    blocks.release(sequence)

    assert (blocks.num_free_blocks, blocks.num_fenced_blocks) == (0, 3)
    blocks.settle(1)
    assert blocks.num_free_blocks == 0
    blocks.settle(2)
    assert (blocks.num_free_blocks, blocks.num_fenced_blocks) == (3, 0)


def test_blocks_behind_the_fence_can_still_be_found() -> None:
    blocks = BlockManager(3, block_size=SIZE)
    prompt = list(range(9))
    first, second = make_sequence(prompt, max_tokens=1), make_sequence(prompt, max_tokens=1)
    blocks.seat(first, blocks.find_prefix(first), num_tokens=10)
    blocks.commit(first, 9)
    blocks.plan(1)
    blocks.release(first)
    blocks.plan(2)

    found = blocks.find_prefix(second)

    # Two are found behind the fence; the third is not free yet.
    assert found.num_tokens == 8
    assert blocks.num_missing_blocks(found, 10) == 1
    blocks.settle(1)
    blocks.seat(second, found, num_tokens=10)
    blocks.check_integrity([second])


def test_double_booking_and_overbooking_are_errors() -> None:
    blocks = BlockManager(2, block_size=16)
    sequence = make_sequence([1] * 20, 1)
    blocks.book(sequence)

    with pytest.raises(EngineError, match="already"):
        blocks.book(sequence)
    with pytest.raises(EngineError, match="no blocks left"):
        blocks.book(make_sequence([1], 1))


def test_double_free_is_an_error() -> None:
    """A block is freed twice and then belongs to two sequences."""
    blocks = BlockManager(2, block_size=16)
    sequence = make_sequence([1] * 20, 1)
    blocks.book(sequence)
    table = list(sequence.block_table)
    blocks.release(sequence)
    sequence.block_table = table

    with pytest.raises(EngineError, match="given back twice"):
        blocks.release(sequence)


def test_integrity_check_finds_a_lost_and_a_doubled_block() -> None:
    blocks = BlockManager(3, block_size=16)
    sequence = make_sequence([1] * 20, 1)
    blocks.book(sequence)
    blocks.check_integrity([sequence])

    with pytest.raises(EngineError, match="balance"):
        blocks.check_integrity([])
    with pytest.raises(EngineError, match="balance"):
        blocks.check_idle()
    sequence.block_table.append(sequence.block_table[0])
    with pytest.raises(EngineError, match="miscounted"):
        blocks.check_integrity([sequence])


def test_host_memory_keeps_as_many_leading_blocks_as_it_has_room_for() -> None:
    blocks = BlockManager(8, block_size=SIZE, prefix_caching=False, num_host_blocks=2)
    sequence = make_sequence(list(range(11)))
    blocks.book(sequence)
    sequence.num_computed_tokens = 11
    table = list(sequence.block_table)

    moved_out = blocks.preempt(sequence)
    moved_back = blocks.seat(sequence, blocks.find_prefix(sequence), num_tokens=15)

    assert [transfer.block for transfer in moved_out] == table[:2]
    assert [transfer.block for transfer in moved_back] == sequence.block_table[:2]
    assert [each.host_block for each in moved_back] == [each.host_block for each in moved_out]
    assert sequence.num_computed_tokens == 8
