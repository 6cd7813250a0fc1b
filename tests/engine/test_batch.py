"""How a plan is laid out in rows."""

from __future__ import annotations

import torch

from engine.batch import build_batch
from engine.block_manager import BlockManager
from engine.plan import Span, StepPlan
from engine.protocol import EngineRequest
from engine.sequence import Sequence


def seated(blocks: BlockManager, token_ids: list[int], max_tokens: int = 1) -> Sequence:
    request = EngineRequest(id="a", token_ids=token_ids, max_tokens=max_tokens)
    sequence = Sequence(request, arrival=0)
    blocks.book(sequence)
    return sequence


def test_rows_of_a_decode_and_a_chunk() -> None:
    blocks = BlockManager(8, block_size=16)
    decode, chunk = seated(blocks, list(range(100, 118))), seated(blocks, list(range(40)))
    decode.append(7)
    plan = StepPlan((Span(decode, 18, 1), Span(chunk, 14, 4)))

    batch = build_batch(plan, block_size=16)

    assert batch.input_ids.tolist() == [7, 14, 15, 16, 17]
    assert batch.positions.tolist() == [18, 14, 15, 16, 17]
    assert batch.row_starts.tolist() == [0, 1, 5]
    assert batch.lengths.tolist() == [19, 18]
    assert batch.block_tables.tolist() == [decode.block_table[:2], chunk.block_table[:2]]
    first, second = chunk.block_table[:2]
    assert batch.slots[1:].tolist() == [16 * first + 14, 16 * first + 15, 16 * second, 16 * second + 1]
    assert batch.slots[0] == 16 * decode.block_table[1] + 2
    assert batch.sample_rows.tolist() == [0]
    assert [span.sequence for span in batch.sampling_spans] == [decode]


def test_padding_rows_lie_on_the_null_block() -> None:
    blocks = BlockManager(8, block_size=16)
    plan = StepPlan((Span(seated(blocks, [5, 6]), 0, 2),), num_padding_tokens=2)

    batch = build_batch(plan, block_size=16)

    assert batch.input_ids.tolist() == [5, 6, 0, 0]
    assert batch.slots[2:].tolist() == [0, 0]
    assert batch.lengths.tolist() == [2, 1, 1]
    assert batch.block_tables[1:].tolist() == [[0], [0]]
    assert batch.sample_rows.tolist() == [1]


def test_token_still_being_drawn_stands_as_zero_and_says_where_it_comes_from() -> None:
    blocks = BlockManager(8, block_size=16)
    known, waiting = (seated(blocks, [5, 6], max_tokens=4) for _ in range(2))
    waiting.num_in_flight_tokens = 1

    plan = StepPlan((Span(known, 0, 2), Span(waiting, 2, 1)))
    batch = build_batch(plan, block_size=16, places={waiting: 7})

    assert batch.input_ids.tolist() == [5, 6, 0]
    assert batch.positions.tolist() == [0, 1, 2]
    assert batch.sample_rows.tolist() == [1, 2]
    assert batch.awaited_rows.tolist() == [2]
    assert batch.awaited.tolist() == [7]


def test_bounds_are_those_of_the_longest() -> None:
    blocks = BlockManager(8, block_size=16)
    plan = StepPlan((Span(seated(blocks, list(range(40))), 30, 4), Span(seated(blocks, [5, 6]), 0, 2)))

    batch = build_batch(plan, block_size=16)

    assert (batch.max_query_tokens, batch.max_context_tokens) == (4, 34)


def test_step_that_only_moves_blocks_has_no_rows() -> None:
    batch = build_batch(StepPlan(()), block_size=16)

    assert batch.input_ids.numel() == 0
    assert batch.sample_rows.tolist() == []
    assert batch.input_ids.dtype == torch.long
