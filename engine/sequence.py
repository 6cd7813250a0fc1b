"""One prompt and what was generated for it."""

from __future__ import annotations

from engine.protocol import EngineRequest


class Sequence:
    """The tokens of one request, how many of them are in the cache, and where.

    `block_table` lists the cache blocks in order: position p lies in block
    `block_table[p // block_size]`. It is empty while the sequence waits.
    """

    __slots__ = ("arrival", "block_table", "num_computed_tokens", "request", "token_ids")

    def __init__(self, request: EngineRequest, *, arrival: int) -> None:
        self.request = request
        self.arrival = arrival
        self.token_ids = list(request.token_ids)
        self.num_computed_tokens = 0
        self.block_table: list[int] = []

    def __repr__(self) -> str:
        return (
            f"Sequence(id={self.request.id!r}, prompt={self.num_prompt_tokens}, "
            f"completion={self.num_completion_tokens}, computed={self.num_computed_tokens}, "
            f"blocks={len(self.block_table)})"
        )

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.request.token_ids)

    @property
    def num_completion_tokens(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def max_num_tokens(self) -> int:
        """The most tokens this sequence can ever have: what admission books."""
        return self.num_prompt_tokens + self.request.max_tokens

    @property
    def num_pending_tokens(self) -> int:
        """Known tokens whose keys and values are not in the cache yet."""
        return len(self.token_ids) - self.num_computed_tokens

    @property
    def is_decoding(self) -> bool:
        """Whether only the newest generated token is still to be computed."""
        return self.num_completion_tokens > 0 and self.num_pending_tokens == 1

    @property
    def order(self) -> tuple[int, int]:
        """Who goes first: lower priority number, then earlier arrival."""
        return (self.request.priority, self.arrival)
