"""All that the sampler must know of a step, laid out in tensors before anything is computed.

A GPU would have to be waited for with every number that it is handed while it computes; so
they are all laid out on the host first, and brought to the device together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from engine.adjustment import Adjustment, lay_out_adjustment
from engine.draw import Draw
from engine.logprobs import LogprobWish, lay_out_logprobs
from engine.sampling import SamplingParams
from engine.truncation import Truncation, is_truncated, lay_out_truncation
from engine.uniform import uniforms


@dataclass(frozen=True, slots=True)
class Chances:
    """Rows that draw, as indices [drawing rows], and a number in [0, 1) for each, in float64."""

    rows: torch.Tensor
    chances: torch.Tensor


@dataclass(frozen=True, slots=True)
class DrawTable:
    """How each row draws; rows that are neither `whole` nor `truncated` take the likeliest token.

    `temperatures` [rows, 1] in float32. What nobody asks for is None.
    """

    params: tuple[SamplingParams, ...]
    temperatures: torch.Tensor
    adjustment: Adjustment | None
    truncated: Chances | None
    truncation: Truncation | None
    whole: Chances | None
    logprobs: LogprobWish | None


def lay_out_draws(draws: Sequence[Draw], *, vocab_size: int) -> DrawTable:
    """The table of these rows, in memory of the host."""
    params = tuple(draw.params for draw in draws)
    drawing = [row for row, each in enumerate(params) if not each.is_greedy]
    truncated = [row for row in drawing if is_truncated(params[row], vocab_size)]
    whole = [row for row in drawing if not is_truncated(params[row], vocab_size)]
    return DrawTable(
        params=params,
        temperatures=torch.tensor([float(each.temperature) for each in params])[:, None],
        adjustment=lay_out_adjustment(draws, vocab_size=vocab_size),
        truncated=_chances(draws, truncated),
        truncation=lay_out_truncation([params[row] for row in truncated], vocab_size=vocab_size)
        if truncated
        else None,
        whole=_chances(draws, whole),
        logprobs=lay_out_logprobs(params),
    )


def _chances(draws: Sequence[Draw], rows: list[int]) -> Chances | None:
    if not rows:
        return None
    seeds, positions = [draws[row].params.seed for row in rows], [draws[row].position for row in rows]
    return Chances(torch.tensor(rows), torch.from_numpy(uniforms(seeds, positions)))
