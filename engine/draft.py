"""A step while it is being planned."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from engine.plan import Span, StepPlan, Transfer
from engine.sequence import Sequence
from engine.step_budget import PATIENCE_STEPS, StepBudget, chunk_size


class Draft:
    """Spans and transfers so far. Sequences change only once the step is planned to its end."""

    def __init__(self) -> None:
        self.spans: dict[Sequence, Span] = {}
        self.swap_outs: list[Transfer] = []
        self.swap_ins: list[Transfer] = []
        self.budget = StepBudget(0, others=False)
        self.num_padding_tokens = 0
        #: Those who got their seat in this step; nobody takes it from them before the next one.
        self.seated: set[Sequence] = set()
        #: Free seats and blocks that one who yields to nobody waits to have enough of.
        self.num_kept_seats = 0
        self.num_kept_blocks = 0
        #: Whether one who is sheltered has to wait on, and all of them behind it.
        self.is_shelter_full = False
        #: Whether those who run had too little memory, so that only those are seated to whom somebody yields.
        self.is_short = False
        #: Whether nobody else is seated in this step.
        self.is_closed = False

    def add_chunk(self, sequence: Sequence, *, long: bool) -> bool:
        """Plan the sequence's next chunk if the budget holds it."""
        start = sequence.num_computed_tokens
        count = chunk_size(start, sequence.num_known_tokens)
        if not self.budget.take(count, long=long):
            return False
        self.spans[sequence] = Span(sequence, start, count)
        return True

    def add_overdue(self, prefilling: Collection[Sequence]) -> None:
        """Plan a chunk of whoever is seated and was passed over longest, if it was so too often.

        One in a step: the others can wait, and what is more urgent still finds a place beside it.
        """
        longest = max(prefilling, key=lambda each: each.num_waited_steps, default=None)
        if longest is not None and longest.num_waited_steps >= PATIENCE_STEPS:
            self.add_chunk(longest, long=longest.is_long)

    def add_prompts(self, prefilling: Iterable[Sequence], *, long: bool) -> None:
        """Plan the next chunks of those who are seated, long or short ones, most urgent first."""
        for sequence in sorted(prefilling, key=lambda each: each.order):
            if sequence.is_long is long and sequence not in self.spans:
                self.add_chunk(sequence, long=long)

    def remove(self, sequence: Sequence, swap_outs: list[Transfer]) -> None:
        """Somebody gives up its blocks in this step."""
        self.spans.pop(sequence, None)
        self.swap_outs += swap_outs

    def finish(self, step: int) -> StepPlan:
        """The plan, with decodes first."""
        spans = list(self.spans.values())
        if self.seated:
            # One who comes back with all its blocks goes on decoding.
            spans.sort(key=lambda span: not span.is_decode)
        return StepPlan(
            spans=tuple(spans),
            step=step,
            swap_outs=tuple(self.swap_outs),
            swap_ins=tuple(self.swap_ins),
            num_padding_tokens=self.num_padding_tokens,
        )
