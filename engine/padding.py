"""What a static batch computes for nobody."""

from __future__ import annotations

from collections.abc import Collection

from engine.sequence import Sequence


class Padding:
    """Counts the rows that fill a static batch up to a rectangle.

        prompt a   |========····|======|      · prompts are padded to the longest of them
        prompt b   |============|===···|        those who have ended are computed on, until
        prompt c   |=====·······|==····|        the one with the most to say has ended

    Its prompts are computed to the end, padding included, before the first token is decoded.
    """

    def __init__(self) -> None:
        self._num_owed = 0
        self._num_seqs = 0

    @property
    def is_owed(self) -> bool:
        """Whether some of the padding of the prompts is still to be computed."""
        return self._num_owed > 0

    def start(self, batch: Collection[Sequence]) -> None:
        """A batch begins."""
        longest = max((sequence.num_pending_tokens for sequence in batch), default=0)
        self._num_owed = sum(longest - sequence.num_pending_tokens for sequence in batch)
        self._num_seqs = len(batch)

    def pay(self, num_tokens: int) -> int:
        """Rows of prompt padding in this step, `num_tokens` at the most."""
        paid = min(self._num_owed, num_tokens)
        self._num_owed -= paid
        return paid

    def beside(self, num_decodes: int) -> int:
        """Rows computed for those who have ended, in a step with so many decodes."""
        return self._num_seqs - num_decodes
