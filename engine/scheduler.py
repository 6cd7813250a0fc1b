"""Which tokens go into the next step. Knows numbers only, no tensors.

One rule: computed tokens catch up with known tokens under a token budget. Decodes come
first, one token each, so that no prompt holds them up; then prompts in chunks, the most
urgent ones first, and of them short ones that are seated, short ones that wait, and then
long ones in the same order.

A step can be planned before the one before it is done. Its result then counts as one more
known token, which nobody has seen yet.
"""

from __future__ import annotations

import math

from engine.block_manager import BlockManager
from engine.config import PREFILL_CHUNK_TOKENS, Admission, Batching
from engine.draft import Draft
from engine.figures import EngineFigures
from engine.padding import Padding
from engine.plan import Span, StepPlan
from engine.protocol import EngineError, Room
from engine.seating import Seating
from engine.sequence import Sequence
from engine.step_budget import StepBudget


class Scheduler:
    """Plans steps for all sequences it was given.

    `continuous` lets sequences join and leave at every step. `window` runs a batch until all
    its members have ended, long prompts apart from short ones. `static` does the same for
    whoever comes, and pads the batch to a rectangle.
    """

    def __init__(
        self,
        blocks: BlockManager,
        *,
        max_num_seqs: int,
        token_budget: int,
        admission: Admission = "reserve",
        batching: Batching = "continuous",
    ) -> None:
        if token_budget < PREFILL_CHUNK_TOKENS + max_num_seqs:
            raise EngineError("the token budget must hold one prefill chunk beside max_num_seqs decodes")
        self._blocks = blocks
        self._token_budget = token_budget
        self._batching: Batching = batching
        self._seating = Seating(blocks, num_seats=max_num_seqs, admission=admission)
        self._padding = Padding()
        self._num_steps = 0
        self._num_computed_tokens = 0
        self._num_padding_tokens = 0
        self._backlog_occupied_seats = 0
        self._backlog_available_seats = 0

    @property
    def waiting(self) -> list[Sequence]:
        """Those without a seat, the next one first."""
        return list(self._seating.waiting)

    @property
    def running(self) -> list[Sequence]:
        """Those with a seat and blocks, in the order they were seated."""
        return list(self._seating.running)

    def has_work(self) -> bool:
        return bool(self._seating.waiting or self._seating.running)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence; one that the whole cache could not hold raises EngineError."""
        if sequence.max_num_tokens > self._blocks.num_cache_tokens:
            raise EngineError(f"{sequence!r} could never fit the cache")
        self._seating.waiting.add(sequence)

    def remove(self, sequence: Sequence, *, spoiled: bool = False) -> None:
        """Forget a sequence, wherever it is; its blocks are free once no step under way needs them.

        If it was `spoiled`, what it has computed is not kept for others.
        """
        self._seating.remove(sequence, spoiled=spoiled)
        if not self.has_work():
            self._blocks.check_idle()

    def room(self, priority: int = 0) -> Room:
        """What is free for somebody of this priority, with all counted as seated who do not yield to it.

        Nothing, while a batch runs that nobody can join; nor does anybody yield where batches are formed.
        """
        if self._batching == "continuous":
            return self._seating.room(priority)
        if self._seating.running:
            return Room(seats=0, cache_tokens=0)
        return self._seating.room(math.inf)

    def schedule(self) -> StepPlan:
        """Plan one step; the plan is empty when all work waits for the steps under way.

        Raises EngineError when somebody waits and nothing could ever wake them.
        """
        draft = Draft()
        if self._batching != "continuous" and not self._seating.running:
            batch = self._seating.form_batch(draft, alike=self._batching == "window")
            if self._batching == "static":
                self._padding.start(batch)
        prefilling = self._plan_decodes(draft)
        if self._batching == "static":
            self._pad(draft)
        self._plan_prompts(draft, prefilling)
        return self._finish(draft)

    def commit(self, plan: StepPlan) -> None:
        """The plan's step is done: its tokens are in the cache, and its fence falls."""
        for span in plan.spans:
            sequence = span.sequence
            if span.epoch == sequence.epoch:
                self._blocks.commit(sequence, span.start + span.count)
        self._blocks.settle(plan.step)

    def figures(self) -> EngineFigures:
        seating = self._seating
        return EngineFigures(
            blocks=self._blocks.figures(seating.running),
            num_running=len(seating.running),
            num_waiting=len(seating.waiting),
            num_seats=seating.num_seats,
            num_steps=self._num_steps,
            num_computed_tokens=self._num_computed_tokens,
            num_padding_tokens=self._num_padding_tokens,
            num_recomputed_tokens=seating.num_recomputed_tokens,
            num_preemptions=seating.num_preemptions,
            num_prefix_query_tokens=seating.num_prefix_query_tokens,
            num_prefix_hit_tokens=seating.num_prefix_hit_tokens,
            backlog_occupied_seats=self._backlog_occupied_seats,
            backlog_available_seats=self._backlog_available_seats,
        )

    def _plan_decodes(self, draft: Draft) -> list[Sequence]:
        """Plan a token for everybody who decodes; returns those who are not so far."""
        running, block_size = self._seating.running, self._blocks.block_size
        decoding, prefilling = self._seating.by_phase()
        if self._batching == "static" and (prefilling or self._padding.is_owed):
            return prefilling
        for sequence in decoding:
            start = sequence.num_computed_tokens
            if start == len(sequence.block_table) * block_size and (
                sequence not in running or not self._seating.make_space(draft, sequence)
            ):
                continue
            draft.spans[sequence] = Span(sequence, start, 1)
        return [each for each in prefilling if each in running]

    def _pad(self, draft: Draft) -> None:
        if draft.spans:
            draft.num_padding_tokens = self._padding.beside(len(draft.spans))
        elif self._padding.is_owed:
            draft.num_padding_tokens = self._padding.pay(self._token_budget - PREFILL_CHUNK_TOKENS)

    def _plan_prompts(self, draft: Draft, prefilling: list[Sequence]) -> None:
        waiting = self._seating.waiting
        num_left = self._token_budget - len(draft.spans) - draft.num_padding_tokens
        others = bool(draft.spans or waiting) or any(not each.is_long for each in prefilling)
        draft.budget = StepBudget(num_left, others=others)
        may_join = self._batching == "continuous" and self._seating.has_claimants(draft)
        candidates = waiting.candidates() if may_join else []
        draft.add_overdue(prefilling)
        for rank in sorted({each.rank for each in (*prefilling, *candidates)}):
            self._plan_rank(
                draft,
                [each for each in prefilling if each.rank == rank],
                [each for each in candidates if each.rank == rank],
            )
        for sequence in prefilling:
            sequence.num_waited_steps = 0 if sequence in draft.spans else sequence.num_waited_steps + 1
        if draft.seated:
            self._note_overtaken(draft, candidates)
            self._seating.shelter.take_in(draft.seated, waiting)

    def _plan_rank(self, draft: Draft, prefilling: list[Sequence], candidates: list[Sequence]) -> None:
        # More urgent ones may just have taken somebody's seat.
        seated = [each for each in prefilling if each in self._seating.running]
        for long in (False, True):
            draft.add_prompts(seated, long=long)
            self._seating.admit(draft, candidates, long=long)

    def _note_overtaken(self, draft: Draft, candidates: list[Sequence]) -> None:
        last = max((index for index, each in enumerate(candidates) if each in draft.seated), default=0)
        for sequence in candidates[:last]:
            if sequence not in draft.seated:
                sequence.num_waited_steps += 1

    def _finish(self, draft: Draft) -> StepPlan:
        plan = draft.finish(self._num_steps + 1)
        if plan.is_empty:
            self._watch()
            return plan
        self._num_steps = plan.step
        self._blocks.plan(plan.step)
        num_tokens = plan.num_padding_tokens
        for span in plan.spans:
            sequence = span.sequence
            sequence.num_computed_tokens += span.count
            sequence.num_in_flight_tokens += span.samples
            num_tokens += span.count
        self._num_computed_tokens += num_tokens
        self._num_padding_tokens += plan.num_padding_tokens
        if self._seating.waiting:
            self._backlog_occupied_seats += len(self._seating.running)
            self._backlog_available_seats += self._seating.num_seats
        return plan

    def _watch(self) -> None:
        if self.has_work() and not self._blocks.has_steps_under_way:
            raise EngineError(
                f"the engine is stalled: {self._blocks.num_free_blocks} of {self._blocks.num_blocks} "
                f"blocks free, running {self.running!r}, waiting {self.waiting!r}"
            )
