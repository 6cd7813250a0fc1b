"""Who has a seat and blocks, who waits, and who must yield. Knows numbers only, no tensors."""

from __future__ import annotations

from engine.block_manager import BlockManager
from engine.config import Admission
from engine.draft import Draft
from engine.prefix import Prefix
from engine.protocol import Room
from engine.sequence import Sequence
from engine.shelter import Shelter
from engine.step_budget import chunk_size, is_long
from engine.victims import longest_victim, outranked
from engine.waiting import WaitingQueue

#: Steps in which a waiting sequence can be overtaken before the cache is emptied for it.
BARRIER_STEPS = 16
#: How many may be passed over in one step before the search for smaller ones ends.
_MOST_PASSED_OVER = 16
#: Optimistic admission takes in requests for so many times the cache.
_OVERSUBSCRIPTION = 2


class Seating:
    """Seats sequences in order of priority, then arrival.

    `reserve` books all blocks a sequence may ever need, so that it never pauses for memory;
    `optimistic` books what its known tokens fill, and when memory runs short the longest gives
    up its blocks. Under either, a more urgent one takes seat and blocks of less urgent ones.

    One who finds no blocks may be overtaken by smaller ones, but only in `BARRIER_STEPS` steps:
    then nobody behind it is seated until it fits. One who had to give up its blocks is not
    overtaken at all. One whose next block somebody else is computing waits for it, to share it.

    Whoever more urgent ones overtake again and again is sheltered in the end: it yields no more, and if no
    other such one runs, what is free is kept for it; the urgent can still take from others.
    """

    def __init__(self, blocks: BlockManager, *, num_seats: int, admission: Admission) -> None:
        self.blocks = blocks
        self.num_seats = num_seats
        self.admission: Admission = admission
        self.waiting = WaitingQueue()
        self.shelter = Shelter(num_seats)
        #: Those with a seat, in the order they got it.
        self.running: dict[Sequence, None] = {}
        self.num_preemptions = 0
        self.num_recomputed_tokens = 0
        self.num_prefix_query_tokens = 0
        self.num_prefix_hit_tokens = 0

    def room(self, priority: float) -> Room:
        """What is free for somebody of this priority, with all counted as seated who do not yield to it."""
        running = [each for each in self.running if not each.yields_to(priority)]
        waiting = [each for each in self.waiting if not each.yields_to(priority)]
        if self.admission == "reserve":
            free = self.blocks.num_free_blocks + self.blocks.num_fenced_blocks
            if len(running) < len(self.running):
                # Those who stay hold no more than they have booked: less, where they share blocks.
                free = max(free, self.blocks.num_blocks - self._num_booked_blocks(running))
        else:
            free = _OVERSUBSCRIPTION * self.blocks.num_blocks - self._num_booked_blocks(running)
        free -= self._num_booked_blocks(waiting)
        seats = self.num_seats - len(running) - len(waiting)
        return Room(seats=max(0, seats), cache_tokens=max(0, free * self.blocks.block_size))

    def remove(self, sequence: Sequence, *, spoiled: bool) -> None:
        """Forget a sequence, wherever it is."""
        if sequence in self.running:
            del self.running[sequence]
        else:
            self.waiting.remove(sequence)
        self.shelter.leave(sequence)
        self.blocks.release(sequence, spoiled=spoiled)

    def admit(self, draft: Draft, candidates: list[Sequence], *, long: bool) -> None:
        """Seat those for whom there is room, with their first chunks: long prompts, or all others."""
        num_passed_over = 0
        for sequence in candidates:
            if draft.is_closed or not draft.budget.num_left or num_passed_over == _MOST_PASSED_OVER:
                return
            if sequence in draft.seated or (sequence.is_sheltered and draft.is_shelter_full):
                continue
            prefix = self.blocks.find_prefix(sequence)
            num_pending = sequence.num_known_tokens - _start(sequence, prefix)
            if is_long(num_pending, num_waited_steps=sequence.num_waited_steps) is not long:
                continue
            if self.blocks.awaits_prefix(sequence, prefix):
                continue
            if not self._has_claim(draft, sequence) and (draft.is_short or not sequence.is_sheltered):
                return
            if not self._admit_one(draft, sequence, prefix, long=long):
                num_passed_over += not sequence.is_sheltered
                self._hold_back_others(draft, sequence, prefix)

    def form_batch(self, draft: Draft, *, alike: bool) -> list[Sequence]:
        """Seat a whole batch, to its last member; with `alike`, long prompts apart from all others."""
        batch: list[Sequence] = []
        for sequence in list(self.waiting):
            if batch and alike and sequence.is_long is not batch[0].is_long:
                continue
            prefix = self.blocks.find_prefix(sequence)
            if not self._fits(draft, sequence, prefix):
                break
            self._seat(draft, sequence, prefix)
            batch.append(sequence)
        return batch

    def make_space(self, draft: Draft, sequence: Sequence) -> bool:
        """One more block for a sequence, at the cost of the longest if there is no other way.

        False if it has to do without in this step.
        """
        while not self.blocks.grow(sequence):
            draft.is_short = True
            # What steps under way still hold will be free soon; nobody need suffer for it.
            victim = None if self.blocks.num_fenced_blocks else longest_victim(list(self.running))
            if victim is None:
                return False
            self._preempt(draft, victim)
            if victim is sequence:
                return False
        return True

    def by_phase(self) -> tuple[list[Sequence], list[Sequence]]:
        """Those who have a token to decode, and those who have a prompt to compute.

        Whoever has drawn or is drawing the last token it may have is neither.
        """
        decoding, prefilling = [], []
        for sequence in self.running:
            num_known = len(sequence.token_ids) + sequence.num_in_flight_tokens
            if num_known - sequence.num_computed_tokens != 1 or num_known == sequence.num_prompt_tokens:
                prefilling.append(sequence)
            elif num_known < sequence.max_num_tokens:
                decoding.append(sequence)
        return decoding, prefilling

    def has_claimants(self, draft: Draft) -> bool:
        """Whether somebody waits who could have a seat."""
        for sequence in self.waiting:
            if self._has_claim(draft, sequence):
                return True
            if not sequence.is_sheltered:
                # The others are less urgent.
                return False
        return False

    def _has_claim(self, draft: Draft, sequence: Sequence) -> bool:
        """Whether there is a seat, or somebody less urgent has one."""
        has_free_seat = self._has_free_seat(draft) and not draft.is_short
        return has_free_seat or any(each.yields_to(sequence.priority) for each in self.running)

    def _has_free_seat(self, draft: Draft) -> bool:
        return len(self.running) + draft.num_kept_seats < self.num_seats

    def _hold_back_others(self, draft: Draft, sequence: Sequence, prefix: Prefix) -> None:
        """Somebody has to wait on; see to it that this comes to an end."""
        if not sequence.is_sheltered:
            draft.is_closed |= sequence.num_waited_steps >= BARRIER_STEPS
            return
        # The next one has its turn after it. For one at a time, or the urgent would be left with nothing.
        draft.is_shelter_full = True
        if not any(each.is_sheltered for each in self.running):
            self._keep(draft, sequence, prefix)

    def _keep(self, draft: Draft, sequence: Sequence, prefix: Prefix) -> None:
        """Nobody behind gets what is free and this one needs; they may still take from others."""
        draft.num_kept_seats += self._has_free_seat(draft)
        missing = self.blocks.num_missing_blocks(prefix, self._booked_tokens(sequence))
        free = self.blocks.num_free_blocks - draft.num_kept_blocks
        draft.num_kept_blocks += max(0, min(missing, free))

    def _admit_one(self, draft: Draft, sequence: Sequence, prefix: Prefix, *, long: bool) -> bool:
        count = chunk_size(_start(sequence, prefix), sequence.num_known_tokens)
        if not draft.budget.holds(count, long=long):
            return False
        if not self._fits(draft, sequence, prefix) and not self._claim(draft, sequence, prefix):
            return False
        self._seat(draft, sequence, prefix)
        return draft.add_chunk(sequence, long=long)

    def _seat(self, draft: Draft, sequence: Sequence, prefix: Prefix) -> None:
        if not sequence.was_seated:
            sequence.was_seated = True
            sequence.num_cached_tokens = prefix.num_tokens
            self.num_prefix_query_tokens += sequence.num_prompt_tokens
            self.num_prefix_hit_tokens += prefix.num_tokens
        transfers = self.blocks.seat(sequence, prefix, num_tokens=self._booked_tokens(sequence))
        self.num_recomputed_tokens += max(0, sequence.num_lost_tokens - sequence.num_computed_tokens)
        sequence.num_lost_tokens = 0
        sequence.num_waited_steps = 0
        self.waiting.remove(sequence)
        self.running[sequence] = None
        draft.swap_ins += transfers
        draft.seated.add(sequence)

    def _claim(self, draft: Draft, sequence: Sequence, prefix: Prefix) -> bool:
        """Let less urgent ones yield until the sequence fits, if that is enough."""
        lower = [each for each in outranked(list(self.running), sequence) if each not in draft.seated]
        held = sum(len(each.block_table) + each.num_promised_blocks for each in lower)
        if self._num_short(draft, sequence, prefix, num_running=len(self.running) - len(lower)) > held:
            return False
        while not self._fits(draft, sequence, prefix):
            is_coming = self._num_short(draft, sequence, prefix, num_running=len(self.running)) <= 0
            if is_coming and self._has_free_seat(draft):
                if not sequence.is_sheltered:
                    self._keep(draft, sequence, prefix)
                return False
            if not lower:
                return False
            self._preempt(draft, lower.pop())
        return True

    def _num_short(self, draft: Draft, sequence: Sequence, prefix: Prefix, *, num_running: int) -> int:
        """Blocks that are missing even when the steps under way are done."""
        missing = self.blocks.num_missing_blocks(prefix, self._booked_tokens(sequence))
        free = self.blocks.num_free_blocks + self.blocks.num_fenced_blocks
        return missing + draft.num_kept_blocks + self._headroom(num_running) - free

    def _fits(self, draft: Draft, sequence: Sequence, prefix: Prefix) -> bool:
        missing = self.blocks.num_missing_blocks(prefix, self._booked_tokens(sequence))
        free = self.blocks.num_free_blocks - draft.num_kept_blocks - self._headroom(len(self.running))
        return self._has_free_seat(draft) and missing <= free

    def _headroom(self, num_running: int) -> int:
        """Blocks to leave for the next tokens of those who run: whoever came in for them would be thrown
        out again at once."""
        return num_running if self.admission == "optimistic" else 0

    def _num_booked_blocks(self, sequences: list[Sequence]) -> int:
        return sum(self.blocks.blocks_for(each.max_num_tokens) for each in sequences)

    def _booked_tokens(self, sequence: Sequence) -> int:
        return sequence.max_num_tokens if self.admission == "reserve" else sequence.num_known_tokens

    def _preempt(self, draft: Draft, victim: Sequence) -> None:
        draft.remove(victim, self.blocks.preempt(victim))
        del self.running[victim]
        # It has its old place, and nobody behind it gets past it.
        victim.num_waited_steps = BARRIER_STEPS
        self.waiting.add(victim)
        self.num_preemptions += 1


def _start(sequence: Sequence, prefix: Prefix) -> int:
    """Where computing would begin."""
    return max(prefix.num_tokens, sequence.num_host_tokens)
