"""From logits to token ids, one independent draw per row.

    logits ── bias, penalties, hidden ends ── peak ──┬── greedy rows: the peak
                                                     ├── truncated rows: the likeliest tokens
                                                     └── others: the whole vocabulary

On a GPU nothing here waits for the device until the result is read: what the rows want was laid
out beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from engine import inverse_cdf
from engine.adjustment import adjust
from engine.draw import Draw
from engine.draw_table import DrawTable, lay_out_draws
from engine.logprobs import RowLogprobs, row_logprobs
from engine.protocol import TokenLogprobs
from engine.sampling import SamplingParams
from engine.scaled_rows import ScaledRows
from engine.truncation import draw_truncated


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
    return choose(logits, lay_out_draws(draws, vocab_size=logits.shape[1])).read()


def choose(logits: torch.Tensor, table: DrawTable, drawn_before: torch.Tensor | None = None) -> Choice:
    """The same without waiting for the result; all tensors are on the logits' device.

    `drawn_before` are the tokens of the step before, where rows still wait for theirs.
    """
    logits = logits.float()
    adjusted = adjust(logits, table.adjustment, drawn_before)
    peak, tokens = inverse_cdf.peaks(adjusted)
    usable = torch.isfinite(peak)
    if adjusted is not logits:
        # An adjustment may have hidden the very token that was not finite.
        usable &= torch.isfinite(logits.amax(dim=-1))
    scaled = ScaledRows(adjusted, peak[:, None], table.temperatures)
    if table.truncated is not None and table.truncation is not None:
        rows = table.truncated.rows
        tokens[rows] = draw_truncated(scaled.of(rows), table.truncation, table.truncated.chances)
    if table.whole is not None:
        rows = table.whole.rows
        tokens[rows] = inverse_cdf.draw_whole(scaled.of(rows).weights(), table.whole.chances)
    logprobs = None if table.logprobs is None else row_logprobs(logits, tokens, table.logprobs)
    return Choice(tokens, usable, logprobs, table.params)
