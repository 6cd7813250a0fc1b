"""Any order of arrivals, cancellations and steps keeps the scheduler's promises."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.block_manager import BlockManager
from engine.protocol import EngineRequest
from engine.scheduler import Scheduler
from engine.sequence import Sequence
from tests.engine.test_scheduler import CHUNK, perform

NUM_BLOCKS, BLOCK_SIZE, SEATS = 40, 16, 5
BUDGET = CHUNK + SEATS


class SchedulerMachine(RuleBasedStateMachine):
    """The scheduler beside the plainest account of what it should hold."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = BlockManager(NUM_BLOCKS, block_size=BLOCK_SIZE)
        self.scheduler = Scheduler(self.blocks, max_num_seqs=SEATS, token_budget=BUDGET)
        self.live: list[Sequence] = []
        self.arrivals = 0

    @rule(prompt=st.integers(1, 400), max_tokens=st.integers(1, 60), priority=st.integers(0, 2))
    def add(self, prompt: int, max_tokens: int, priority: int) -> None:
        request = EngineRequest(
            id=str(self.arrivals), token_ids=range(prompt), max_tokens=max_tokens, priority=priority
        )
        sequence = Sequence(request, arrival=self.arrivals)
        self.arrivals += 1
        self.scheduler.add(sequence)
        self.live.append(sequence)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from(self.live))
        self.scheduler.remove(sequence)
        self.live.remove(sequence)

    @rule()
    def step(self) -> None:
        waiting = self.scheduler.waiting
        plan = self.scheduler.schedule()
        seated = [sequence for sequence in waiting if sequence.block_table]
        # Head-of-line: those seated are the first of those who waited.
        assert seated == waiting[: len(seated)]
        assert plan.num_tokens <= BUDGET
        assert len({id(span.sequence) for span in plan.spans}) == len(plan.spans)
        decoding = [sequence for sequence in self.scheduler.running if sequence.is_decoding]
        assert [span.sequence for span in plan.spans if span.is_decode] == decoding
        for span in plan.spans:
            assert span.start == span.sequence.num_computed_tokens
            assert span.start + span.count <= len(span.sequence.block_table) * BLOCK_SIZE
        perform(self.scheduler, plan)
        self.live = [each for each in self.live if each.num_completion_tokens < each.request.max_tokens]

    @rule()
    def drain(self) -> None:
        # Every step computes something, so this bound is the work itself.
        left = sum(sequence.max_num_tokens for sequence in self.live)
        for _ in range(left):
            if not self.scheduler.has_work():
                break
            self.step()
        assert not self.live
        assert self.blocks.num_free_blocks == NUM_BLOCKS

    @invariant()
    def books_balance(self) -> None:
        self.blocks.check_integrity(self.live)

    @invariant()
    def every_live_sequence_waits_or_runs(self) -> None:
        known = self.scheduler.waiting + self.scheduler.running
        assert sorted(map(id, known)) == sorted(map(id, self.live))
        assert len(self.scheduler.running) <= SEATS

    @invariant()
    def running_ones_own_all_they_may_need(self) -> None:
        for sequence in self.scheduler.running:
            assert len(sequence.block_table) * BLOCK_SIZE >= sequence.max_num_tokens
        for sequence in self.scheduler.waiting:
            assert not sequence.block_table


SchedulerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestScheduler = SchedulerMachine.TestCase
