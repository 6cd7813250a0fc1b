"""Any order of arrivals, cancellations and steps keeps the scheduler's promises."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.plan import StepPlan
from engine.protocol import Room
from tests.engine.paper_engine import CHUNK, PaperEngine
from tests.examples import examples

NUM_TOKENS, SEATS = 400, 5

_DISCIPLINES: list[dict[str, Any]] = [
    {"admission": "reserve"},
    {"admission": "optimistic"},
    {"batching": "window"},
    {"batching": "static"},
]


class SchedulerMachine(RuleBasedStateMachine):
    """The scheduler beside a dict that knows which tokens each block must hold.

    Finds wrong, stale and lost blocks, blocks that are given away under a step still running,
    placeholders that are never filled, tokens lost or doubled over a preemption, stalls.
    """

    @initialize(
        late=st.booleans(),
        caching=st.booleans(),
        # Most of the time in the ways that are meant for service.
        discipline=st.sampled_from(_DISCIPLINES[:2] * 3 + _DISCIPLINES[2:]),
        num_host_blocks=st.sampled_from([0, 6, 60]),
        block_size=st.sampled_from([4, 4, 1, 16]),
        num_chunks=st.sampled_from([1, 2]),
    )
    def build(
        self,
        late: bool,
        caching: bool,
        discipline: dict[str, Any],
        num_host_blocks: int,
        block_size: int,
        num_chunks: int,
    ) -> None:
        self.discipline = discipline
        self.num_blocks = NUM_TOKENS // block_size
        self.budget = num_chunks * CHUNK + SEATS
        self.paper = PaperEngine(
            num_blocks=self.num_blocks,
            block_size=block_size,
            seats=SEATS,
            late=late,
            num_host_blocks=num_host_blocks,
            prefix_caching=caching,
            budget=self.budget,
            **discipline,
        )
        self.priorities: set[int] = set()

    @rule(
        # Few tokens and a long common beginning: prefixes are found, and part ways, all the time.
        common=st.integers(0, 60) | st.integers(280, 320),
        own=st.lists(st.integers(0, 1), min_size=1, max_size=20),
        max_tokens=st.integers(1, 60),
        priority=st.integers(0, 2),
        n=st.sampled_from([1, 1, 1, 3]),
        whose=st.sampled_from([{}, {}, {"cache_salt": "a"}, {"adapter": "a"}]),
    )
    def add(
        self, common: int, own: list[int], max_tokens: int, priority: int, n: int, whose: dict[str, str]
    ) -> None:
        self.paper.add([0] * common + own, max_tokens, priority=priority, n=n, **whose)
        self.priorities.add(priority)

    @precondition(lambda self: self.paper.live)
    @rule(data=st.data(), spoiled=st.booleans())
    def cancel(self, data: st.DataObject, spoiled: bool) -> None:
        self.paper.cancel(data.draw(st.sampled_from(self.paper.live)), spoiled=spoiled)

    @precondition(lambda self: self.paper.live)
    @rule(data=st.data())
    def cancel_all_choices(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.paper.live)).request
        for sequence in [each for each in self.paper.live if each.request is request]:
            self.paper.cancel(sequence)

    @rule()
    def step(self) -> None:
        before = {sequence: sequence.num_known_tokens for sequence in self.paper.scheduler.running}
        plan = self.paper.step()

        self._check_shape(plan)
        for sequence, num_known in before.items():
            # Nobody unlearns a token, whatever is taken from it.
            assert sequence not in self.paper.live or sequence.num_known_tokens >= num_known

    @rule(count=st.integers(2, 30))
    def steps(self, count: int) -> None:
        for _ in range(count):
            self.step()

    @rule()
    def drain(self) -> None:
        # The longest prompt takes four chunks and three times that in turns with others, and nobody has
        # more than sixty tokens to say; whoever had to yield begins anew once for each that came before.
        self.paper.drain(max_steps=200 * (len(self.paper.live) + 1))

    @invariant()
    def books_balance(self) -> None:
        self.paper.check_books()
        figures = self.paper.blocks.figures(self.paper.live)
        num_blocks = figures.num_free_blocks + figures.num_cached_blocks + figures.num_used_blocks
        assert num_blocks == self.num_blocks

    @invariant()
    def every_live_sequence_waits_or_runs(self) -> None:
        scheduler = self.paper.scheduler
        known = scheduler.waiting + scheduler.running
        assert sorted(map(id, known)) == sorted(map(id, self.paper.live))
        assert len(scheduler.running) <= SEATS
        assert not any(sequence.block_table for sequence in scheduler.waiting)
        assert scheduler.waiting == sorted(scheduler.waiting, key=lambda each: each.order)

    @invariant()
    def nobody_yields_for_memory_where_it_is_booked(self) -> None:
        if self.discipline.get("admission") != "optimistic" and len(self.priorities) < 2:
            assert self.paper.scheduler.figures().num_preemptions == 0

    @invariant()
    def room_is_what_the_live_ones_leave(self) -> None:
        scheduler, blocks = self.paper.scheduler, self.paper.blocks
        if self.discipline.get("batching") and scheduler.running:
            assert {scheduler.room(priority) for priority in range(3)} == {Room(0, 0)}
        elif self.discipline.get("admission") != "optimistic":
            room = scheduler.room(2)
            held = {block for sequence in scheduler.running for block in sequence.block_table}
            promised = sum(sequence.num_promised_blocks for sequence in scheduler.running)
            wanted = sum(blocks.blocks_for(sequence.max_num_tokens) for sequence in scheduler.waiting)
            num_free = self.num_blocks - len(held) - promised - wanted
            assert room == Room(max(0, SEATS - len(self.paper.live)), max(0, num_free * blocks.block_size))

    @invariant()
    def room_grows_with_urgency(self) -> None:
        scheduler = self.paper.scheduler
        rooms = [scheduler.room(priority) for priority in range(3)]
        for less, more in zip(rooms[1:], rooms, strict=False):
            assert more.seats >= less.seats
            assert more.cache_tokens >= less.cache_tokens
        if "batching" not in self.discipline:
            as_urgent = [each for each in self.paper.live if each.priority == 0 or each.is_sheltered]
            assert rooms[0].seats == max(0, SEATS - len(as_urgent))

    @invariant()
    def few_are_sheltered(self) -> None:
        assert sum(each.is_sheltered for each in self.paper.live) <= 1

    def _check_shape(self, plan: StepPlan) -> None:
        """Within the budget, each sequence once, decodes first, prompts cut on the grid."""
        assert plan.num_tokens <= self.budget
        assert len({span.sequence for span in plan.spans}) == len(plan.spans)
        kinds = [span.is_decode for span in plan.spans]
        assert kinds == sorted(kinds, reverse=True)
        for span in plan.spans:
            assert span.count > 0
            assert span.samples or span.end % CHUNK == 0
            assert span.start // CHUNK == (span.end - 1) // CHUNK


SchedulerMachine.TestCase.settings = settings(
    max_examples=examples(80), stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestScheduler = SchedulerMachine.TestCase
