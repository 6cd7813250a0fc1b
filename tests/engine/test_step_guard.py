"""A step for which there is no memory, on paper: what is tried, in which pieces, and who fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from engine.plan import Span, StepPlan, Transfer
from engine.protocol import DeviceLost, EngineLost, EngineRequest
from engine.runner import DoneStep
from engine.sequence import Sequence as EngineSequence
from engine.step_guard import WARY_STEPS, StepGuard

#: Whether there is memory for a piece.
Holds = Callable[[StepPlan], bool]


def span(name: str, num_tokens: int) -> Span:
    request = EngineRequest(name, [1] * num_tokens, 4)
    return Span(EngineSequence(request, arrival=0), 0, num_tokens)


def plan(*sizes: int, step: int = 1) -> StepPlan:
    """Spans of these sizes, called a, b, c and so on."""
    return StepPlan(tuple(span("abcdefgh"[index], size) for index, size in enumerate(sizes)), step=step)


def at_most(num_tokens: int) -> Holds:
    return lambda piece: piece.num_tokens <= num_tokens


def not_with(*names: str) -> Holds:
    return lambda piece: not set(names_of(piece.spans)) & set(names)


def names_of(spans: Sequence[Span]) -> str:
    return "".join(span.sequence.request.id for span in spans)


class Computer:
    """Computes what there is memory for; notes what was tried."""

    def __init__(self, holds: Holds) -> None:
        self.holds = holds
        self.tried: list[str] = []
        self.plans: list[StepPlan] = []
        self.done: list[DoneStep] = []
        self.guard = StepGuard(self._run)

    def compute(self, plan: StepPlan) -> tuple[str, str]:
        """The names of those who were computed, and of those who failed."""
        self.tried.clear()
        self.plans.clear()
        self.done = list(self.guard.run(plan))
        failed = [span for done in self.done for span in done.failed]
        computed = [span for done in self.done for span in done.plan.spans if span not in failed]
        return names_of(computed), names_of(failed)

    def _run(self, piece: StepPlan) -> list[DoneStep]:
        if piece.is_empty:
            return []
        self.tried.append(names_of(piece.spans))
        self.plans.append(piece)
        if not self.holds(piece):
            raise MemoryError(f"{piece.num_tokens} tokens")
        return [DoneStep(piece, [])]


def test_a_step_that_only_moves_blocks_is_done_with_them() -> None:
    """Nobody ever says that it is done, and the blocks that were given up stay behind its fence."""
    computer = Computer(at_most(100))
    moves = StepPlan((), step=7, swap_outs=(Transfer(3, 0),))

    computer.compute(moves)

    assert [done.plan.step for done in computer.done] == [6, 7]
    assert [piece.swap_outs for piece in computer.plans] == [moves.swap_outs]


def test_who_has_ended_while_blocks_were_moved_is_not_computed() -> None:
    computer = Computer(at_most(100))
    whole = replace(plan(40, 20), swap_outs=(Transfer(3, 0),))
    steps = computer.guard.run(whole)

    next(steps)
    whole.spans[0].sequence.leave_blocks()

    assert [names_of(done.plan.spans) for done in steps] == ["b"]


def test_a_step_that_fits_is_computed_whole() -> None:
    computer = Computer(at_most(100))

    assert computer.compute(plan(40, 40, 20)) == ("abc", "")
    assert computer.tried == ["abc"]


def test_a_step_that_does_not_fit_is_computed_in_pieces_of_half_the_tokens() -> None:
    computer = Computer(at_most(100))

    # 160 tokens are too many, and 80 are not.
    assert computer.compute(plan(1, 1, 78, 40, 40)) == ("abcde", "")
    assert computer.tried == ["abcde", "abc", "de"]


def test_pieces_shrink_until_they_fit() -> None:
    computer = Computer(at_most(50))

    # After 160 and 80 tokens, pieces of 40.
    assert computer.compute(plan(40, 40, 40, 20, 20)) == ("abcde", "")
    assert computer.tried == ["abcde", "ab", "a", "b", "c", "de"]


def test_the_next_steps_do_not_try_again_what_did_not_fit() -> None:
    computer = Computer(at_most(100))
    computer.compute(plan(80, 80))

    for _ in range(WARY_STEPS):
        computer.compute(plan(60, 60))
        assert computer.tried == ["a", "b"]
    computer.holds = at_most(1000)
    computer.compute(plan(60, 60))

    assert computer.tried == ["ab"]


def test_small_steps_stay_whole_after_a_large_one_failed() -> None:
    computer = Computer(at_most(100))
    computer.compute(plan(80, 80))

    computer.compute(plan(*[1] * 8))

    assert computer.tried == ["abcdefgh"]


def test_who_does_not_fit_alone_fails_and_the_others_are_computed() -> None:
    computer = Computer(not_with("c"))

    assert computer.compute(plan(1, 1, 64, 64)) == ("abd", "c")


def test_a_second_failure_in_a_row_loses_the_engine() -> None:
    computer = Computer(not_with("c", "d"))

    with pytest.raises(EngineLost, match="out of memory: 64 tokens") as lost:
        computer.compute(plan(1, 1, 64, 64))

    assert not isinstance(lost.value, DeviceLost)


def test_a_second_failure_in_a_later_step_loses_the_engine_if_only_smaller_ones_were_computed() -> None:
    computer = Computer(at_most(63))
    assert computer.compute(plan(1, 64)) == ("a", "b")
    assert computer.compute(plan(1, 63)) == ("ab", "")

    with pytest.raises(EngineLost):
        computer.compute(plan(1, 64))


def test_a_failure_after_one_as_large_was_computed_counts_as_the_first() -> None:
    computer = Computer(not_with("b"))
    assert computer.compute(plan(1, 64)) == ("a", "b")
    assert computer.compute(plan(64)) == ("a", "")

    assert computer.compute(plan(1, 64)) == ("a", "b")


def test_blocks_are_moved_once_and_before_anything_is_computed() -> None:
    computer = Computer(at_most(100))
    moving = StepPlan(plan(80, 80).spans, step=7, swap_outs=(Transfer(1, 0),), swap_ins=(Transfer(2, 1),))

    assert computer.compute(moving) == ("ab", "")
    assert computer.tried == ["", "ab", "a", "b"]
    assert computer.plans[0].swap_outs == (Transfer(1, 0),)
    assert computer.plans[0].swap_ins == (Transfer(2, 1),)
    assert [(piece.swap_outs, piece.swap_ins) for piece in computer.plans[1:]] == [((), ())] * 3


def test_a_step_is_done_with_the_last_of_its_pieces() -> None:
    computer = Computer(not_with("b"))

    computer.compute(plan(1, 64, 1, step=7))

    assert [(names_of(done.plan.spans), done.plan.step) for done in computer.done[:-1]] == [
        ("a", 6),
        ("b", 6),
        ("c", 6),
    ]
    assert computer.done[-1].plan == StepPlan((), step=7)


def test_blocks_that_cannot_be_moved_lose_the_engine() -> None:
    computer = Computer(lambda piece: not piece.swap_outs)

    with pytest.raises(EngineLost):
        computer.compute(StepPlan(plan(8).spans, step=1, swap_outs=(Transfer(1, 0),)))


def test_padding_goes_before_anybody_fails() -> None:
    computer = Computer(at_most(100))
    padded = StepPlan(plan(64).spans, step=1, num_padding_tokens=64)

    assert computer.compute(padded) == ("a", "")
    assert [piece.num_tokens for piece in computer.plans] == [128, 64]


def test_padding_alone_is_dropped() -> None:
    computer = Computer(at_most(100))

    assert computer.compute(StepPlan((), step=1, num_padding_tokens=128)) == ("", "")
    assert [piece.num_tokens for piece in computer.plans] == [128]
    assert [done.plan for done in computer.done] == [StepPlan((), step=1)]


class LateComputer:
    """Has a step under way when it is asked for the next one, and takes in what is done."""

    def __init__(self, holds: Holds) -> None:
        self.holds = holds
        self.taken_in: list[str] = []
        self.guard = StepGuard(self._run)
        self._under_way: StepPlan | None = None
        self._ends_with: dict[str, EngineSequence] = {}

    def end_with(self, name: str, other: EngineSequence) -> None:
        """A sequence turns out to have ended when a step with this name in it is taken in."""
        self._ends_with[name] = other

    def compute(self, plan: StepPlan) -> None:
        for done in self.guard.run(plan):
            names = names_of(done.plan.spans)
            if names:
                self.taken_in.append(names)
            for name in names:
                if name in self._ends_with:
                    self._ends_with[name].leave_blocks()

    def _run(self, piece: StepPlan) -> list[DoneStep]:
        if not piece.is_empty and not self.holds(piece):
            raise MemoryError(f"{piece.num_tokens} tokens")
        before, self._under_way = self._under_way, None if piece.is_empty else piece
        return [] if before is None else [DoneStep(before, [])]


def test_the_step_under_way_is_taken_in_before_pieces_of_the_next_one() -> None:
    computer = LateComputer(at_most(100))
    computer.compute(StepPlan((span("x", 80),), step=1))
    assert computer.taken_in == []

    computer.compute(plan(60, 60, step=2))

    assert computer.taken_in == ["x", "a", "b"]


def test_who_has_ended_meanwhile_is_not_computed_in_pieces() -> None:
    computer = LateComputer(at_most(100))
    too_large = plan(60, 60, step=2)
    computer.end_with("x", too_large.spans[0].sequence)
    computer.compute(StepPlan((span("x", 80),), step=1))

    computer.compute(too_large)

    assert computer.taken_in == ["x", "b"]
