"""Any order of arrivals, cancellations and steps keeps the scheduler's promises."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.engine.paper_engine import CHUNK, PaperEngine

NUM_BLOCKS, SEATS = 100, 5


class SchedulerMachine(RuleBasedStateMachine):
    """The scheduler beside a dict that knows which tokens each block must hold.

    Finds wrong, stale and lost blocks, blocks that are given away under a step still running,
    placeholders that are never filled, tokens lost or doubled over a preemption, stalls.
    """

    @initialize(
        late=st.booleans(),
        caching=st.booleans(),
        admission=st.sampled_from(["reserve", "optimistic"]),
        num_host_blocks=st.sampled_from([0, 6, 60]),
    )
    def build(self, late: bool, caching: bool, admission: str, num_host_blocks: int) -> None:
        self.paper = PaperEngine(
            num_blocks=NUM_BLOCKS,
            seats=SEATS,
            late=late,
            num_host_blocks=num_host_blocks,
            prefix_caching=caching,
            admission=admission,
        )

    @rule(
        # Few tokens and a long common beginning: prefixes are found, and part ways, all the time.
        common=st.integers(0, 60) | st.integers(280, 320),
        own=st.lists(st.integers(0, 1), min_size=1, max_size=20),
        max_tokens=st.integers(1, 60),
        priority=st.integers(0, 2),
        n=st.sampled_from([1, 1, 1, 3]),
    )
    def add(self, common: int, own: list[int], max_tokens: int, priority: int, n: int) -> None:
        self.paper.add([0] * common + own, max_tokens, priority=priority, n=n)

    @precondition(lambda self: self.paper.live)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.paper.cancel(data.draw(st.sampled_from(self.paper.live)))

    @rule()
    def step(self) -> None:
        plan = self.paper.step()

        assert plan.num_tokens <= CHUNK + SEATS
        assert len({span.sequence for span in plan.spans}) == len(plan.spans)
        kinds = [span.is_decode for span in plan.spans]
        assert kinds == sorted(kinds, reverse=True)

    @rule(count=st.integers(2, 30))
    def steps(self, count: int) -> None:
        for _ in range(count):
            self.step()

    @rule()
    def drain(self) -> None:
        self.paper.drain()

    @invariant()
    def books_balance(self) -> None:
        self.paper.check_books()
        figures = self.paper.blocks.figures(self.paper.live)
        assert figures.num_free_blocks + figures.num_cached_blocks + figures.num_used_blocks == NUM_BLOCKS

    @invariant()
    def every_live_sequence_waits_or_runs(self) -> None:
        scheduler = self.paper.scheduler
        known = scheduler.waiting + scheduler.running
        assert sorted(map(id, known)) == sorted(map(id, self.paper.live))
        assert len(scheduler.running) <= SEATS
        assert not any(sequence.block_table for sequence in scheduler.waiting)


SchedulerMachine.TestCase.settings = settings(
    max_examples=80, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestScheduler = SchedulerMachine.TestCase
