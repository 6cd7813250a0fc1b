"""An engine on paper: runs the scheduler's plans against a dict, and finds every wrong block.

What a cache slot holds is written down as the number of the whole prefix it was computed
from, since keys depend on all tokens before them, and of those who may share it. Before a
span is computed, every earlier position of its sequence must hold the right prefix. The next
token is a function of the prefix, so each completion can be checked against what it would be
alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.block_manager import BlockManager
from engine.plan import Span, StepPlan
from engine.protocol import EngineRequest
from engine.scheduler import Scheduler
from engine.sequence import Sequence as EngineSequence

CHUNK = 128


@dataclass
class Prefixes:
    """Numbers prefixes, apart for each `domain` that shares nothing with others.

    0 is what is computed for nobody.
    """

    _numbers: dict[tuple[int, Hashable], int] = field(default_factory=dict)

    def number(self, prefix: int, token: Hashable) -> int:
        return self._numbers.setdefault((prefix, token), len(self._numbers) + 1)

    def of(self, tokens: Iterable[int], *, domain: Hashable) -> list[int]:
        numbers, prefix = [], self.number(0, domain)
        for token in tokens:
            prefix = self.number(prefix, token)
            numbers.append(prefix)
        return numbers


def next_token(tokens: Sequence[int], *, endless: bool = False) -> int | None:
    """The token that follows, from few, so that prefixes are shared; None at the end of the text."""
    drawn = hash((tuple(tokens[-5:]), len(tokens))) % 19
    return None if drawn == 0 and not endless else drawn % 2


def complete_alone(request: EngineRequest, *, endless: bool = False) -> list[int]:
    tokens = list(request.token_ids)
    for _ in range(request.max_tokens):
        token = next_token(tokens, endless=endless)
        if token is None:
            break
        tokens.append(token)
    return tokens[len(request.token_ids) :]


@dataclass
class Flight:
    """A plan on its way, with the block tables it was planned with."""

    plan: StepPlan
    tables: list[list[int]]

    def written(self, span: Span, table: list[int], block_size: int) -> set[int]:
        return set(table[span.start // block_size : (span.end - 1) // block_size + 1])


class PaperEngine:
    """Plans, computes on paper, and checks.

    With `late`, each step is planned before the last is done. With `endless`, every completion is
    as long as it may be.
    """

    def __init__(
        self,
        *,
        num_blocks: int = 64,
        block_size: int = 4,
        seats: int = 4,
        late: bool = False,
        endless: bool = False,
        budget: int | None = None,
        num_host_blocks: int = 0,
        prefix_caching: bool = True,
        **settings: Any,
    ) -> None:
        self.blocks = BlockManager(
            num_blocks,
            block_size=block_size,
            num_host_blocks=num_host_blocks,
            prefix_caching=prefix_caching,
        )
        self.scheduler = Scheduler(
            self.blocks, max_num_seqs=seats, token_budget=budget or CHUNK + seats, **settings
        )
        self.late = late
        self.endless = endless
        self._prefix_caching = prefix_caching
        self.live: list[EngineSequence] = []
        self.completions: dict[tuple[str, int], list[int]] = {}
        self.plans: list[StepPlan] = []
        self._prefixes = Prefixes()
        self._cells: dict[tuple[int, int], int] = {}
        self._host: dict[int, list[int]] = {}
        self._under_way: deque[Flight] = deque()
        self._num_arrivals = 0

    def add(self, prompt: Sequence[int], max_tokens: int, **settings: Any) -> list[EngineSequence]:
        """One sequence per choice."""
        settings.setdefault("id", str(self._num_arrivals))
        request = EngineRequest(token_ids=prompt, max_tokens=max_tokens, **settings)
        sequences = [
            EngineSequence(request, arrival=self._num_arrivals, choice=choice) for choice in range(request.n)
        ]
        self._num_arrivals += 1
        for sequence in sequences:
            self.scheduler.add(sequence)
        self.live += sequences
        return sequences

    def cancel(self, sequence: EngineSequence, *, spoiled: bool = False) -> None:
        self.live.remove(sequence)
        self.scheduler.remove(sequence, spoiled=spoiled)

    def step(self) -> StepPlan:
        plan = self.scheduler.schedule()
        self.plans.append(plan)
        if not plan.is_empty:
            tables = [list(span.sequence.block_table) for span in plan.spans]
            flight = Flight(plan, tables)
            self._check_fence(flight)
            self._under_way.append(flight)
        while self._under_way and (len(self._under_way) > self.late or plan.is_empty):
            self._complete(self._under_way.popleft())
        return plan

    def step_until(self, condition: Callable[[], bool], *, max_steps: int = 500) -> None:
        for _ in range(max_steps):
            if condition():
                return
            self.step()
        raise AssertionError(f"it did not come to pass in {max_steps} steps")

    def drain(self, *, max_steps: int = 5000) -> None:
        """Step until all is done and checked."""
        for _ in range(max_steps):
            if not (self.live or self._under_way):
                self.blocks.check_integrity([])
                return
            self.step()
        raise AssertionError(f"{self.live} left after {max_steps} steps")

    def check_books(self) -> None:
        self.blocks.check_integrity(self.live)

    def _check_fence(self, flight: Flight) -> None:
        size = self.blocks.block_size
        written = {target.block for target in flight.plan.swap_ins}
        by_sequence = {
            span.sequence: flight.written(span, table, size)
            for span, table in zip(flight.plan.spans, flight.tables, strict=True)
        }
        for earlier in self._under_way:
            for span, table in zip(earlier.plan.spans, earlier.tables, strict=True):
                read = set(table[: -(-span.end // size)])
                others = [blocks for each, blocks in by_sequence.items() if each is not span.sequence]
                assert not read & written.union(*others), "a block in use by a step under way is written"

    def _complete(self, flight: Flight) -> None:
        plan, size = flight.plan, self.blocks.block_size
        for block, host_block in plan.swap_outs:
            self._host[host_block] = [self._cells.get((block, offset), 0) for offset in range(size)]
        for block, host_block in plan.swap_ins:
            for offset, number in enumerate(self._host[host_block]):
                self._cells[block, offset] = number
        for span, table in zip(plan.spans, flight.tables, strict=True):
            self._compute(span, table)
        self.scheduler.commit(plan)
        for span in plan.spans:
            if span.samples and span.sequence in self.live:
                self._draw(span.sequence)

    def _compute(self, span: Span, table: list[int]) -> None:
        size = self.blocks.block_size
        # One that ended meanwhile is computed on with a token that nobody knows.
        numbers = self._prefixes.of(span.sequence.token_ids[: span.end], domain=self._domain(span.sequence))
        for position in range(span.end):
            cell = table[position // size], position % size
            assert cell[0] > 0, "a sequence has the null block"
            if position < span.start:
                assert self._cells.get(cell) == numbers[position], f"{span} finds a wrong block"
            else:
                self._cells[cell] = numbers[position] if position < len(numbers) else 0

    def _domain(self, sequence: EngineSequence) -> Hashable:
        request = sequence.request
        return request.adapter, request.cache_salt, None if self._prefix_caching else sequence.arrival

    def _draw(self, sequence: EngineSequence) -> None:
        token = next_token(sequence.token_ids, endless=self.endless)
        if token is not None:
            sequence.append(token)
        if token is None or sequence.num_completion_tokens == sequence.request.max_tokens:
            tokens = sequence.token_ids[sequence.num_prompt_tokens :]
            assert tokens == complete_alone(sequence.request, endless=self.endless)
            self.completions[sequence.request.id, sequence.choice] = tokens
            self.cancel(sequence)
