"""From logits to token ids, one independent draw per row.

    logits ── bias, penalties, hidden ends ── peak ──┬── greedy rows: the peak
                                                     ├── truncated rows: the likeliest tokens
                                                     └── others: the whole vocabulary

On a GPU nothing here waits for the device until the result is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from engine import inverse_cdf
from engine.adjustment import adjust
from engine.draw import Draw
from engine.logprobs import RowLogprobs, row_logprobs
from engine.protocol import TokenLogprobs
from engine.sampling import SamplingParams
from engine.scaled_rows import ScaledRows
from engine.truncation import draw_truncated, is_truncated
from engine.uniform import uniforms


@dataclass(frozen=True, slots=True)
class Drawn:
    """The token of one row, None if the row had no usable distribution; logprobs if asked for."""

    token: int | None
    logprobs: TokenLogprobs | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """What was drawn, as tensors beside the logits: token ids and which of them count, [rows] each."""

    tokens: torch.Tensor
    usable: torch.Tensor
    logprobs: RowLogprobs | None
    params: tuple[SamplingParams, ...]

    def read(self) -> list[Drawn]:
        """Bring the result to the host; on a GPU this waits for the draw."""
        tokens: list[int] = self.tokens.tolist()
        logprobs = {} if self.logprobs is None else self.logprobs.read(tokens, self.params)
        return [
            Drawn(token, logprobs.get(row)) if usable else Drawn(None)
            for row, (token, usable) in enumerate(zip(tokens, self.usable.tolist(), strict=True))
        ]


def sample(logits: torch.Tensor, draws: Sequence[Draw]) -> list[Drawn]:
    """One token per row of logits [rows, vocabulary].

    No token for a row without a usable distribution (NaN, or infinite everywhere); the other
    rows are unharmed. A row's token depends on its own logits, settings, history and position only.
    """
    return choose(logits, draws).read()


def choose(logits: torch.Tensor, draws: Sequence[Draw]) -> Choice:
    """The same without waiting for the result."""
    logits = logits.float()
    params = tuple(draw.params for draw in draws)
    adjusted = adjust(logits, draws)
    peak, tokens = inverse_cdf.peaks(adjusted)
    usable = torch.isfinite(peak)
    if adjusted is not logits:
        # An adjustment may have hidden the very token that was not finite.
        usable &= torch.isfinite(logits.amax(dim=-1))
    scaled = ScaledRows(adjusted, peak[:, None], _temperatures(params, logits.device))
    for draw_rows, rows in _kinds(params, vocab_size=logits.shape[1]):
        if rows:
            index = torch.tensor(rows, device=logits.device)
            chances = torch.from_numpy(_chances([draws[row] for row in rows])).to(logits.device)
            tokens[index] = draw_rows(scaled.of(index), [params[row] for row in rows], chances)
    return Choice(tokens, usable, row_logprobs(logits, tokens, params), params)


_DrawRows = Callable[[ScaledRows, Sequence[SamplingParams], torch.Tensor], torch.Tensor]


def _kinds(params: Sequence[SamplingParams], *, vocab_size: int) -> list[tuple[_DrawRows, list[int]]]:
    """How the rows are drawn that do not take the peak, and which they are."""
    drawn = [row for row, each in enumerate(params) if not each.is_greedy]
    truncated = [row for row in drawn if is_truncated(params[row], vocab_size)]
    whole = [row for row in drawn if not is_truncated(params[row], vocab_size)]
    return [(draw_truncated, truncated), (_draw_whole, whole)]


def _temperatures(params: Sequence[SamplingParams], device: torch.device) -> torch.Tensor:
    return torch.tensor([each.temperature for each in params], device=device)[:, None]


def _chances(draws: Sequence[Draw]) -> npt.NDArray[np.float64]:
    return uniforms([draw.params.seed for draw in draws], [draw.position for draw in draws])


def _draw_whole(scaled: ScaledRows, _: Sequence[SamplingParams], chances: torch.Tensor) -> torch.Tensor:
    return inverse_cdf.draw_whole(scaled.weights(), chances)
