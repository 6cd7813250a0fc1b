"""Everything that one step takes in, laid out before it is computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.batch import Batch, build_batch
from engine.draw import Draw
from engine.draw_table import DrawTable, lay_out_draws
from engine.plan import Span, StepPlan
from engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class StepInputs:
    """The rows to compute, and how those that sample draw; None if none does."""

    batch: Batch
    table: DrawTable | None


def lay_out_step(
    plan: StepPlan, *, block_size: int, vocab_size: int, places: Mapping[Sequence, int] | None = None
) -> StepInputs:
    """A plan in tensors, in memory of the host.

    `places` says where the tokens that the step before is still drawing will be among its tokens.
    """
    places = places or {}
    batch = build_batch(plan, block_size=block_size, places=places)
    draws = [_draw_of(span, places) for span in batch.sampling_spans]
    return StepInputs(batch, lay_out_draws(draws, vocab_size=vocab_size) if draws else None)


def _draw_of(span: Span, places: Mapping[Sequence, int]) -> Draw:
    sequence = span.sequence
    return Draw(
        sequence.sampling,
        position=span.end - sequence.num_prompt_tokens,
        history=sequence.token_ids,
        num_prompt_tokens=sequence.num_prompt_tokens,
        awaited=places[sequence] if span.is_awaited else None,
    )
