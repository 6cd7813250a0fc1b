"""Which sequences go into the next step. Knows numbers only, no tensors.

One rule: computed tokens catch up with known tokens under a token budget. Decodes come
first, one token each, so that no prompt holds them up; then prompts, cut on a fixed grid:

    position   0        128       256      300
    prompt     |--------|---------|--------|      three chunks, in three steps

The grid depends on the prompt alone, never on what is left of the budget, so a sequence is
computed in the same pieces whoever runs beside it.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from engine.block_manager import BlockManager
from engine.config import PREFILL_CHUNK_TOKENS
from engine.protocol import EngineError, Room
from engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Span:
    """`count` tokens of one sequence to compute, from position `start` on."""

    sequence: Sequence
    start: int
    count: int

    @property
    def is_decode(self) -> bool:
        return self.sequence.is_decoding

    @property
    def samples(self) -> bool:
        """Whether this span ends at the newest known token, so that a next one is drawn."""
        return self.start + self.count == len(self.sequence.token_ids)


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What one step computes: decodes first, then chunks of prompts."""

    spans: tuple[Span, ...]

    @property
    def num_tokens(self) -> int:
        return sum(span.count for span in self.spans)


class Scheduler:
    """Seats waiting sequences and plans steps.

    A sequence is seated only when all blocks it may ever need are free, and then runs to
    its end. Waiting ones are seated in order of priority, then arrival; the first is never
    overtaken, so a large one cannot be starved by small ones.
    """

    def __init__(self, blocks: BlockManager, *, max_num_seqs: int, token_budget: int) -> None:
        if token_budget < PREFILL_CHUNK_TOKENS + max_num_seqs:
            raise EngineError("the token budget must hold one prefill chunk beside max_num_seqs decodes")
        self._blocks = blocks
        self._max_num_seqs = max_num_seqs
        self._token_budget = token_budget
        self._waiting: list[tuple[tuple[int, int], Sequence]] = []
        self._running: list[Sequence] = []

    @property
    def waiting(self) -> list[Sequence]:
        """Those without a seat, the next one first."""
        return [sequence for _, sequence in sorted(self._waiting, key=lambda entry: entry[0])]

    @property
    def running(self) -> list[Sequence]:
        """Those with a seat and blocks, in the order they were seated."""
        return list(self._running)

    def has_work(self) -> bool:
        return bool(self._waiting or self._running)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence; one that the whole cache could not hold raises EngineError."""
        if sequence.max_num_tokens > self._blocks.num_cache_tokens:
            raise EngineError(f"{sequence!r} could never fit the cache")
        heapq.heappush(self._waiting, (sequence.order, sequence))

    def remove(self, sequence: Sequence) -> None:
        """Forget a sequence, wherever it is, and free its blocks at once."""
        if sequence in self._running:
            self._running.remove(sequence)
        else:
            self._waiting = [entry for entry in self._waiting if entry[1] is not sequence]
            heapq.heapify(self._waiting)
        self._blocks.release(sequence)
        if not self.has_work():
            self._blocks.check_integrity([])

    def room(self) -> Room:
        """Free seats and cache tokens, with every waiting sequence counted as seated."""
        wanted = sum(self._blocks.blocks_for(entry[1].max_num_tokens) for entry in self._waiting)
        seats = self._max_num_seqs - len(self._running) - len(self._waiting)
        free_tokens = (self._blocks.num_free_blocks - wanted) * self._blocks.block_size
        return Room(seats=max(0, seats), cache_tokens=max(0, free_tokens))

    def schedule(self) -> StepPlan:
        """Seat whom there is room for and plan one step.

        Raises EngineError when somebody waits and nobody could be planned: that would wait forever.
        """
        self._seat_waiting()
        plan = StepPlan(spans=(*self._decodes(), *self._prefills()))
        if not plan.spans and self.has_work():
            raise EngineError(
                f"the engine is stalled: {self._blocks.num_free_blocks} of {self._blocks.num_blocks} "
                f"blocks free, running {self._running!r}, waiting {self.waiting!r}"
            )
        return plan

    def commit(self, plan: StepPlan) -> None:
        """Note that the plan's tokens are in the cache."""
        for span in plan.spans:
            span.sequence.num_computed_tokens += span.count

    def _seat_waiting(self) -> None:
        while self._waiting and len(self._running) < self._max_num_seqs:
            sequence = self._waiting[0][1]
            if not self._blocks.can_book(sequence):
                return
            heapq.heappop(self._waiting)
            self._blocks.book(sequence)
            self._running.append(sequence)

    def _decodes(self) -> list[Span]:
        return [
            Span(sequence, start=sequence.num_computed_tokens, count=1)
            for sequence in self._running
            if sequence.is_decoding
        ]

    def _prefills(self) -> list[Span]:
        prefilling = sorted(
            (sequence for sequence in self._running if not sequence.is_decoding), key=lambda s: s.order
        )
        left = self._token_budget - (len(self._running) - len(prefilling))
        spans = []
        for sequence in prefilling:
            start = sequence.num_computed_tokens
            count = min(PREFILL_CHUNK_TOKENS - start % PREFILL_CHUNK_TOKENS, sequence.num_pending_tokens)
            # One that does not fit is passed over, not cut: shorter ones behind it may fit, and
            # the first always does, since the budget holds a whole chunk beside all decodes.
            if count <= left:
                spans.append(Span(sequence, start=start, count=count))
                left -= count
        return spans
