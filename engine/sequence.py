"""One prompt and what was generated for it."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from engine.prefix import CachedBlock, Link
from engine.protocol import EngineRequest
from engine.sampling import SamplingParams
from engine.step_budget import is_long


class Sequence:
    """The tokens of one choice of a request, how many of them are in the cache, and where.

    `block_table` lists the cache blocks in order: position p lies in block
    `block_table[p // block_size]`. It is empty while the sequence waits.

        position   0 ........ num_stored .... num_computed .... len(token_ids) .. num_known
                   in the cache   | a planned step  | to be       | drawn by a step whose
                                  | writes them     | computed    | result is not known yet
    """

    __slots__ = (
        "arrival",
        "block_table",
        "choice",
        "committed",
        "epoch",
        "host_blocks",
        "is_sheltered",
        "links",
        "max_num_tokens",
        "num_announced_blocks",
        "num_cached_tokens",
        "num_committed_blocks",
        "num_computed_tokens",
        "num_host_tokens",
        "num_in_flight_tokens",
        "num_lost_tokens",
        "num_overtakings",
        "num_promised_blocks",
        "num_prompt_tokens",
        "num_stored_tokens",
        "num_waited_steps",
        "order",
        "priority",
        "request",
        "sampling",
        "token_ids",
        "was_seated",
    )

    def __init__(self, request: EngineRequest, *, arrival: int, choice: int = 0) -> None:
        self.request = request
        self.arrival = arrival
        self.choice = choice
        #: Who goes first: whoever is sheltered, then a lower priority number, then earlier arrival.
        self.order = (1, request.priority, arrival, choice)
        self.priority = request.priority
        self.sampling = _sampling_of(request.sampling, choice)
        self.token_ids = list(request.token_ids)
        self.num_prompt_tokens = len(self.token_ids)
        #: The most tokens this sequence can ever have.
        self.max_num_tokens = self.num_prompt_tokens + request.max_tokens
        self.num_computed_tokens = 0
        self.num_stored_tokens = 0
        self.num_in_flight_tokens = 0
        #: Prompt tokens found in the prefix cache when it was first seated.
        self.num_cached_tokens = 0
        #: Tokens that had been computed when it was last preempted.
        self.num_lost_tokens = 0
        #: Steps in a row that it was passed over.
        self.num_waited_steps = 0
        #: More urgent ones that came later and got a seat while it had none.
        self.num_overtakings = 0
        self.is_sheltered = False
        self.was_seated = False
        self._clear_blocks()
        self.host_blocks: list[int] = []
        self.num_host_tokens = 0
        #: What the prefix cache calls its full blocks; kept for good, since tokens never change.
        self.links: list[Link] = []
        self.epoch = 0

    def __repr__(self) -> str:
        return (
            f"Sequence(id={self.request.id!r}, choice={self.choice}, prompt={self.num_prompt_tokens}, "
            f"completion={self.num_completion_tokens}, computed={self.num_computed_tokens}, "
            f"blocks={len(self.block_table)})"
        )

    def append(self, token: int) -> None:
        """Add the token that a step has drawn."""
        self.token_ids.append(token)
        self.num_in_flight_tokens = max(0, self.num_in_flight_tokens - 1)

    def leave_blocks(self) -> None:
        """Forget the blocks and what they held; a step planned earlier no longer counts."""
        self.num_lost_tokens = max(self.num_lost_tokens, self.num_computed_tokens)
        self.num_computed_tokens = 0
        self.num_stored_tokens = 0
        self.epoch += 1
        self._clear_blocks()

    def take_shelter(self) -> None:
        """From now on it goes before all others, by arrival; so its place in a queue is another one."""
        self.is_sheltered = True
        self.order = (0, 0, self.arrival, self.choice)

    def yields_to(self, priority: float) -> bool:
        """Whether it gives up seat and blocks for one of this priority."""
        return self.priority > priority and not self.is_sheltered

    def is_overtaken_by(self, other: Sequence) -> bool:
        """Whether the other one, which got a seat, came later and is more urgent."""
        return self.arrival < other.arrival and self.priority > other.priority

    def _clear_blocks(self) -> None:
        self.block_table: list[int] = []
        #: Blocks that are certain to be there once they are needed.
        self.num_promised_blocks = 0
        #: Leading blocks known to the prefix cache, and the last of them there.
        self.num_committed_blocks = 0
        self.committed: CachedBlock | None = None
        #: Leading blocks whose content others may wait for.
        self.num_announced_blocks = 0

    @property
    def rank(self) -> tuple[int, int]:
        """How urgent it is, as a part of its order: its equals differ in arrival alone."""
        return self.order[:2]

    @property
    def num_completion_tokens(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def num_known_tokens(self) -> int:
        """Tokens there are, those of steps not done yet included."""
        return len(self.token_ids) + self.num_in_flight_tokens

    @property
    def num_pending_tokens(self) -> int:
        """Known tokens that no step was planned for yet."""
        return len(self.token_ids) + self.num_in_flight_tokens - self.num_computed_tokens

    @property
    def is_long(self) -> bool:
        """Whether so much is still to be computed that shorter ones go first."""
        return is_long(self.num_pending_tokens, num_waited_steps=self.num_waited_steps)

    @property
    def is_decoding(self) -> bool:
        """Whether only the newest generated token is still to be computed."""
        return self.num_known_tokens > self.num_prompt_tokens and self.num_pending_tokens == 1


def _sampling_of(sampling: SamplingParams, choice: int) -> SamplingParams:
    """The first choice draws by the request's seed, each other one by a seed of its own."""
    if choice == 0:
        return sampling
    digest = hashlib.blake2b(f"{sampling.seed} choice {choice}".encode(), digest_size=8).digest()
    return replace(sampling, seed=int.from_bytes(digest))
