"""What the sampler must know of a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.sampling import SamplingParams


@dataclass(frozen=True, slots=True)
class Draw:
    """How one row draws: its settings, and which token of its completion this is, from 0.

    `history` holds prompt and completion so far, of which the first `num_prompt_tokens` are
    the prompt; it is read only where penalties need it. Where the step before is still drawing the
    newest token, `history` is without it, and `awaited` is its place among that step's tokens.
    """

    params: SamplingParams
    position: int
    history: Sequence[int] = ()
    num_prompt_tokens: int = 0
    awaited: int | None = None

    @property
    def hidden(self) -> tuple[int, ...]:
        """Tokens that would end the text too early."""
        return self.params.stop_token_ids if self.position < self.params.min_tokens else ()

    @property
    def past(self) -> Sequence[int]:
        """The known tokens that penalties look at: without a repetition penalty the completion alone."""
        if not self.params.has_penalties:
            return ()
        return self.history if self.params.repetition_penalty != 1 else self.generated

    @property
    def num_past_tokens(self) -> int:
        """Tokens that penalties look at, an awaited one included."""
        return len(self.past) + (self.awaited is not None) if self.params.has_penalties else 0

    @property
    def generated(self) -> Sequence[int]:
        return self.history[self.num_prompt_tokens :]
