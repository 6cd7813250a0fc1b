"""The block manager beside a dict that says, for every block, which tokens it holds."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.block_manager import BlockManager
from engine.plan import Transfer
from engine.protocol import EngineRequest
from engine.sequence import Sequence
from tests.examples import examples

NUM_BLOCKS, SIZE = 9, 2
#: What a block holds: the salt, and all tokens from the first of the prompt to its own last one.
Content = tuple[str | None, tuple[int, ...]]


class BlockMachine(RuleBasedStateMachine):
    """Finds content that is found where it is not, or not found where it is; blocks that are given
    away while somebody has them or a step under way reads them; and blocks that are lost.
    """

    @initialize(num_host_blocks=st.sampled_from([0, 3, 20]))
    def build(self, num_host_blocks: int) -> None:
        self.blocks = BlockManager(NUM_BLOCKS, block_size=SIZE, num_host_blocks=num_host_blocks)
        self.waiting: list[Sequence] = []
        self.seated: list[Sequence] = []
        #: What lies in each block, of the cache and of host memory.
        self.contents: dict[int, Content] = {}
        self.host: dict[int, Content] = {}
        #: All that was ever committed, and whether some of it may be gone.
        self.committed: set[Content] = set()
        self.has_lost_content = False
        #: Blocks whose content nobody may find; host blocks that the next step still reads.
        self.spoiled: set[int] = set()
        self.being_read: set[int] = set()
        #: The steps that are planned and not done, and which blocks must wait for which of them.
        self.planned = self.settled = 0
        self.fences: dict[int, int] = {}
        self.num_arrivals = 0

    @rule(
        common=st.integers(1, 6),
        own=st.lists(st.integers(0, 1), max_size=3),
        max_tokens=st.integers(1, 6),
        salt=st.sampled_from([None, None, None, "a"]),
        num_alike=st.integers(1, 3),
    )
    def arrive(self, common: int, own: list[int], max_tokens: int, salt: str | None, num_alike: int) -> None:
        tokens = [0] * common + own
        for _ in range(num_alike):
            request = EngineRequest(id="a", token_ids=tokens, max_tokens=max_tokens, cache_salt=salt)
            self.waiting.append(Sequence(request, arrival=self.num_arrivals))
            self.num_arrivals += 1

    @precondition(lambda self: self.waiting)
    @rule(data=st.data(), reserve=st.booleans(), computes=st.booleans(), leaves=st.booleans())
    def seat(self, data: st.DataObject, reserve: bool, computes: bool, leaves: bool) -> None:
        sequence = data.draw(st.sampled_from(self.waiting))
        found = self.blocks.find_prefix(sequence)
        self._check_found(sequence, [node.block for node in found.nodes])
        num_tokens = sequence.max_num_tokens if reserve else sequence.num_known_tokens
        if self.blocks.num_missing_blocks(found, num_tokens) > self.blocks.num_free_blocks:
            return

        held = self._held()
        transfers = self.blocks.seat(sequence, found, num_tokens=num_tokens)

        for block in sequence.block_table[: len(found.nodes)]:
            self.fences.pop(block, None)
        for block in sequence.block_table[len(found.nodes) :]:
            self._take(block, held)
        self._bring_back(sequence, transfers)
        self.waiting.remove(sequence)
        self.seated.append(sequence)
        self._check_computed(sequence)
        if computes:
            self._compute(sequence, len(sequence.token_ids))
            if leaves:
                self._leave(sequence, spoiled=False)

    @precondition(lambda self: self.seated)
    @rule(data=st.data())
    def compute(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from(self.seated))
        self._compute(sequence, data.draw(st.integers(sequence.num_computed_tokens, len(sequence.token_ids))))

    def _compute(self, sequence: Sequence, end: int) -> None:
        first = sequence.num_computed_tokens // SIZE
        for index in range(first, end // SIZE):
            self.contents[sequence.block_table[index]] = content_of(sequence, index)
        sequence.num_computed_tokens = end

        self.blocks.commit(sequence, end)

        self.committed |= {content_of(sequence, index) for index in range(end // SIZE)}

    @precondition(lambda self: self.seated)
    @rule(data=st.data(), token=st.integers(0, 1))
    def draw_token(self, data: st.DataObject, token: int) -> None:
        sequence = data.draw(st.sampled_from(self.seated))
        if len(sequence.token_ids) == sequence.max_num_tokens:
            return
        if len(sequence.token_ids) == len(sequence.block_table) * SIZE:
            is_certain, held = sequence.num_promised_blocks > 0, self._held()
            has_grown = self.blocks.grow(sequence)
            assert has_grown or not is_certain
            if not has_grown:
                return
            self._take(sequence.block_table[-1], held)
        sequence.append(token)

    @precondition(lambda self: self.seated)
    @rule(data=st.data())
    def preempt(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from(self.seated))
        table, held = list(sequence.block_table), self._held()
        kept = self.being_read.union(*(each.host_blocks for each in self.waiting))

        for block, host_block in self.blocks.preempt(sequence):
            assert block == table.pop(0)
            assert host_block not in kept
            self._copy(self.contents.get(block), self.host, host_block)

        self.seated.remove(sequence)
        self.waiting.append(sequence)
        self._fence(held - self._held())

    @precondition(lambda self: self.seated or self.waiting)
    @rule(data=st.data(), spoiled=st.booleans())
    def leave(self, data: st.DataObject, spoiled: bool) -> None:
        self._leave(data.draw(st.sampled_from(self.seated + self.waiting)), spoiled=spoiled)

    def _leave(self, sequence: Sequence, *, spoiled: bool) -> None:
        table, held = list(sequence.block_table), self._held()
        self.being_read |= set(sequence.host_blocks)

        self.blocks.release(sequence, spoiled=spoiled)

        (self.seated if sequence in self.seated else self.waiting).remove(sequence)
        if spoiled and table:
            self.spoiled |= set(table)
            self.has_lost_content = True
        self._fence(held - self._held())

    @rule()
    def plan(self) -> None:
        self.planned += 1
        self.blocks.plan(self.planned)
        self.being_read.clear()

    @precondition(lambda self: self.planned > self.settled)
    @rule()
    def settle(self) -> None:
        self.settled += 1
        self.blocks.settle(self.settled)
        self.fences = {block: step for block, step in self.fences.items() if step > self.settled}

    @invariant()
    def books_balance(self) -> None:
        self.blocks.check_integrity(self.seated)
        promised = sum(sequence.num_promised_blocks for sequence in self.seated)
        num_free = NUM_BLOCKS - len(self._held()) - len(self.fences) - promised
        assert self.blocks.num_free_blocks == num_free >= 0
        assert self.blocks.num_fenced_blocks == len(self.fences)

    def teardown(self) -> None:
        if not hasattr(self, "blocks"):
            return
        for sequence in self.seated + self.waiting:
            self.blocks.release(sequence)
        self.blocks.settle(self.planned)
        self.blocks.check_idle()
        assert self.blocks.num_free_blocks == NUM_BLOCKS

    def _held(self) -> set[int]:
        return {block for sequence in self.seated for block in sequence.block_table}

    def _take(self, block: int, held: set[int]) -> None:
        """A sequence got a block of its own: nobody else has it or reads it, and its content is lost."""
        assert 1 <= block <= NUM_BLOCKS
        assert block not in held
        assert block not in self.fences
        held.add(block)
        self.has_lost_content |= self.contents.pop(block, None) is not None
        self.spoiled.discard(block)

    def _fence(self, dropped: set[int]) -> None:
        """What nobody holds any more waits for the newest step under way."""
        if self.planned > self.settled:
            self.fences |= dict.fromkeys(dropped, self.planned)

    def _bring_back(self, sequence: Sequence, transfers: list[Transfer]) -> None:
        for block, host_block in transfers:
            assert block in sequence.block_table
            self._copy(self.host.get(host_block), self.contents, block)
            self.being_read.add(host_block)

    def _copy(self, content: Content | None, target: dict[int, Content], block: int) -> None:
        target.pop(block, None)
        if content is not None:
            target[block] = content

    def _check_found(self, sequence: Sequence, found: list[int]) -> None:
        longest = (len(sequence.token_ids) - 1) // SIZE
        assert len(found) <= longest
        assert not self.spoiled.intersection(found)
        for index, block in enumerate(found):
            assert self.contents[block] == content_of(sequence, index)
        if not self.has_lost_content and len(found) < longest:
            assert content_of(sequence, len(found)) not in self.committed

    def _check_computed(self, sequence: Sequence) -> None:
        """What counts as computed is really there."""
        for index in range(sequence.num_computed_tokens // SIZE):
            assert self.contents[sequence.block_table[index]] == content_of(sequence, index)


def content_of(sequence: Sequence, index: int) -> Content:
    return sequence.request.cache_salt, tuple(sequence.token_ids[: (index + 1) * SIZE])


BlockMachine.TestCase.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)
TestBlockManager = BlockMachine.TestCase
