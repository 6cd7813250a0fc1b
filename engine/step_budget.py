"""Shares out the tokens of one step.

Prompts are cut on a fixed grid:

    position   0        128       256      300
    prompt     |--------|---------|--------|      three chunks, in three steps

The grid depends on the prompt alone, never on what is left of the budget, so a sequence is
computed in the same pieces whoever runs beside it. After a prefix that was found, the first
chunk ends at the next line of the grid.
"""

from __future__ import annotations

from engine.config import PREFILL_CHUNK_TOKENS

#: A prompt with more tokens than this still to compute counts as long.
LONG_PROMPT_TOKENS = 2 * PREFILL_CHUNK_TOKENS
#: Steps after which a prompt that got nothing is not put off any more: a long one is treated like a short
#: one, and one that has a seat goes before more urgent ones.
PATIENCE_STEPS = 4


def is_long(num_tokens: int, *, num_waited_steps: int = 0) -> bool:
    """Whether a prompt with so many tokens to compute lets shorter ones go first."""
    return num_tokens > LONG_PROMPT_TOKENS and num_waited_steps < PATIENCE_STEPS


def chunk_size(start: int, num_known_tokens: int) -> int:
    """Tokens from `start` to the next line of the grid, or to the end of what is known."""
    return min(PREFILL_CHUNK_TOKENS - start % PREFILL_CHUNK_TOKENS, num_known_tokens - start)


class StepBudget:
    """What is left of a step's tokens, and of the share that long prompts may have of it.

    While anybody else is there, long prompts get half of what decodes leave, and one chunk at
    the least: a step takes every other sequence one token further, however it is filled.
    """

    def __init__(self, num_tokens: int, *, others: bool) -> None:
        self.num_left = num_tokens
        self._num_left_for_long = max(PREFILL_CHUNK_TOKENS, num_tokens // 2) if others else num_tokens

    def holds(self, num_tokens: int, *, long: bool) -> bool:
        return num_tokens <= self.num_left and not (long and num_tokens > self._num_left_for_long)

    def take(self, num_tokens: int, *, long: bool) -> bool:
        """Use up tokens, all of them or none: a chunk is never cut to fit."""
        if not self.holds(num_tokens, long=long):
            return False
        self.num_left -= num_tokens
        if long:
            self._num_left_for_long -= num_tokens
        return True
