"""What one step computes and moves. Knows numbers only, no tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from engine.sequence import Sequence


class Span:
    """`count` tokens of one sequence to compute, from position `start` on.

    `samples` says whether the span ends at the newest known token, so that a next one is
    drawn; `is_decode` whether that token is also the only one. `epoch` is the sequence's when
    this was planned: another one by the time the step is done means that the sequence has
    given its blocks up meanwhile.
    """

    __slots__ = ("count", "epoch", "is_decode", "samples", "sequence", "start")

    def __init__(self, sequence: Sequence, start: int, count: int) -> None:
        self.sequence = sequence
        self.start = start
        self.count = count
        self.epoch = sequence.epoch
        num_known = sequence.num_known_tokens
        self.samples = start + count == num_known
        self.is_decode = self.samples and count == 1 and num_known > sequence.num_prompt_tokens

    def __repr__(self) -> str:
        return f"Span({self.sequence.request.id!r}, {self.start}, {self.count})"

    @property
    def end(self) -> int:
        """The position after the last one computed."""
        return self.start + self.count

    @property
    def is_awaited(self) -> bool:
        """Whether a step under way is still drawing the last token."""
        return self.start + self.count > len(self.sequence.token_ids)


class Transfer(NamedTuple):
    """A block of the cache and the host block its content goes to or comes from."""

    block: int
    host_block: int


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What one step does, in this order: `swap_outs`, `swap_ins`, then the rows of `spans`.

    Swap-outs come before anything is written, since their blocks may be used anew in the
    same step. Of the spans, decodes come first. `num_padding_tokens` more rows are computed
    for nobody, on the null block. `step` counts plans from 1.
    """

    spans: tuple[Span, ...]
    step: int = 0
    swap_outs: tuple[Transfer, ...] = ()
    swap_ins: tuple[Transfer, ...] = ()
    num_padding_tokens: int = 0

    @property
    def num_tokens(self) -> int:
        """Rows computed, padding included."""
        return sum(span.count for span in self.spans) + self.num_padding_tokens

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to run."""
        return not (self.spans or self.swap_outs or self.swap_ins or self.num_padding_tokens)
