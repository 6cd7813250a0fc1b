"""A step for which there is no memory, on paper: what is tried, in which pieces, and who fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from engine.plan import Span, StepPlan, Transfer
from engine.protocol import DeviceLost, EngineLost, EngineRequest
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
        self.guard = StepGuard(self._run)

    def compute(self, plan: StepPlan) -> tuple[str, str]:
        """The names of those who were computed, and of those who failed."""
        self.tried.clear()
        self.plans.clear()
        results, failed = self.guard.run(plan)
        return "".join(results), names_of(failed)

    def _run(self, piece: StepPlan) -> list[str]:
        self.tried.append(names_of(piece.spans))
        self.plans.append(piece)
        if not self.holds(piece):
            raise MemoryError(f"{piece.num_tokens} tokens")
        return list(names_of(piece.spans))


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
    assert computer.plans[0] == StepPlan((), step=7, swap_outs=(Transfer(1, 0),), swap_ins=(Transfer(2, 1),))
    assert [(piece.step, piece.swap_outs, piece.swap_ins) for piece in computer.plans[1:]] == [
        (7, (), ())
    ] * 3


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
