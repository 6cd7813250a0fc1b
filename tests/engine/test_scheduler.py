"""Scheduling and block books, without a network."""

from __future__ import annotations

import pytest

from engine.block_manager import BlockManager
from engine.protocol import EngineError, EngineRequest, Room
from engine.scheduler import Scheduler, StepPlan
from engine.sequence import Sequence

CHUNK = 128


def make_scheduler(*, num_blocks: int = 64, seats: int = 4, budget: int = CHUNK + 64) -> Scheduler:
    return Scheduler(BlockManager(num_blocks, block_size=16), max_num_seqs=seats, token_budget=budget)


def make_sequence(
    name: str, prompt: int, max_tokens: int, *, arrival: int = 0, priority: int = 0
) -> Sequence:
    request = EngineRequest(id=name, token_ids=range(prompt), max_tokens=max_tokens, priority=priority)
    return Sequence(request, arrival=arrival)


def perform(scheduler: Scheduler, plan: StepPlan) -> None:
    """What an engine does with a plan, a token drawn from thin air."""
    drawing = [span.sequence for span in plan.spans if span.samples]
    scheduler.commit(plan)
    for sequence in drawing:
        sequence.token_ids.append(0)
        if sequence.num_completion_tokens == sequence.request.max_tokens:
            scheduler.remove(sequence)


def spans_of(plan: StepPlan) -> list[tuple[str, int, int]]:
    return [(span.sequence.request.id, span.start, span.count) for span in plan.spans]


def test_long_prompt_is_cut_on_the_grid_and_then_decoded() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence("a", 300, 2))

    steps = []
    while scheduler.has_work():
        plan = scheduler.schedule()
        steps += spans_of(plan)
        perform(scheduler, plan)

    assert steps == [("a", 0, 128), ("a", 128, 128), ("a", 256, 44), ("a", 300, 1)]


def test_decodes_advance_beside_a_long_prompt() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_sequence("short", 10, 9))
    perform(scheduler, scheduler.schedule())
    scheduler.add(make_sequence("long", 400, 2, arrival=1))

    for step in range(4):
        plan = scheduler.schedule()
        assert spans_of(plan)[0] == ("short", 10 + step, 1)
        assert spans_of(plan)[1][:2] == ("long", 128 * step)
        perform(scheduler, plan)


def test_budget_bounds_a_step_and_chunks_are_never_cut_to_fit() -> None:
    scheduler = make_scheduler(budget=2 * CHUNK + 4)
    for index, prompt in enumerate((500, 200, 90, 4)):
        scheduler.add(make_sequence(str(index), prompt, 1, arrival=index))

    first = scheduler.schedule()
    perform(scheduler, first)
    second = scheduler.schedule()

    assert spans_of(first) == [("0", 0, 128), ("1", 0, 128), ("3", 0, 4)]
    assert spans_of(second) == [("0", 128, 128), ("1", 128, 72)]


def test_blocks_for_prompt_and_completion_are_booked_at_once() -> None:
    scheduler = make_scheduler(num_blocks=4)
    sequence = make_sequence("a", 17, 16)
    scheduler.add(sequence)

    scheduler.schedule()

    assert len(sequence.block_table) == 3
    assert scheduler.room() == Room(seats=3, cache_tokens=16)


def test_large_request_at_the_head_is_not_overtaken() -> None:
    scheduler = make_scheduler(num_blocks=8)
    scheduler.add(make_sequence("first", 60, 4))
    perform(scheduler, scheduler.schedule())
    scheduler.add(make_sequence("large", 100, 20, arrival=1))
    scheduler.add(make_sequence("small", 1, 1, arrival=2))

    scheduler.schedule()
    waiting = [sequence.request.id for sequence in scheduler.waiting]

    assert waiting == ["large", "small"]


def test_priority_comes_before_arrival() -> None:
    scheduler = make_scheduler(seats=1)
    for arrival, priority in enumerate((3, 1, 2, 1)):
        scheduler.add(make_sequence(str(arrival), 4, 1, arrival=arrival, priority=priority))

    assert [sequence.request.id for sequence in scheduler.waiting] == ["1", "3", "2", "0"]


def test_sequence_that_could_never_fit_is_refused() -> None:
    scheduler = make_scheduler(num_blocks=8)

    with pytest.raises(EngineError, match="never fit"):
        scheduler.add(make_sequence("a", 120, 9))

    assert not scheduler.has_work()


def test_stall_is_an_error_with_a_dump() -> None:
    blocks = BlockManager(4, block_size=16)
    scheduler = Scheduler(blocks, max_num_seqs=4, token_budget=CHUNK + 4)
    blocks.book(make_sequence("leaked", 60, 4))
    scheduler.add(make_sequence("stuck", 4, 4))

    with pytest.raises(EngineError, match=r"stalled: 0 of 4 blocks free.*'stuck'"):
        scheduler.schedule()


def test_too_small_a_budget_is_refused() -> None:
    with pytest.raises(EngineError, match="budget"):
        make_scheduler(seats=8, budget=CHUNK + 7)


def test_double_booking_and_overbooking_are_errors() -> None:
    blocks = BlockManager(2, block_size=16)
    sequence = make_sequence("a", 20, 1)
    blocks.book(sequence)

    with pytest.raises(EngineError, match="already"):
        blocks.book(sequence)
    with pytest.raises(EngineError, match="no blocks left"):
        blocks.book(make_sequence("b", 1, 1))


def test_integrity_check_finds_a_lost_and_a_doubled_block() -> None:
    blocks = BlockManager(3, block_size=16)
    sequence = make_sequence("a", 20, 1)
    blocks.book(sequence)
    blocks.check_integrity([sequence])

    with pytest.raises(EngineError, match="balance"):
        blocks.check_integrity([])
    sequence.block_table.append(sequence.block_table[0])
    with pytest.raises(EngineError, match="1 counted twice"):
        blocks.check_integrity([sequence])
