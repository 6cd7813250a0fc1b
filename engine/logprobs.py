"""What the model itself thought of the tokens: logprobs before temperature, bias and penalties."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from engine import inverse_cdf
from engine.protocol import TokenLogprobs
from engine.sampling import MAX_TOP_LOGPROBS, SamplingParams


@dataclass(frozen=True, slots=True)
class RowLogprobs:
    """Logprobs of the rows that asked, still where the logits are.

    `chosen` is [asking rows], `top` and `top_ids` are [asking rows, alternatives].
    """

    rows: tuple[int, ...]
    chosen: torch.Tensor
    top: torch.Tensor
    top_ids: torch.Tensor

    def read(self, tokens: Sequence[int], params: Sequence[SamplingParams]) -> dict[int, TokenLogprobs]:
        """Each asking row's logprobs, with as many alternatives as it wants, likeliest first."""
        found = {}
        lists = self.chosen.tolist(), self.top.tolist(), self.top_ids.tolist()
        for row, chosen, top, ids in zip(self.rows, *lists, strict=True):
            wanted = params[row].num_logprobs or 0
            pairs = tuple(zip(ids[:wanted], top[:wanted], strict=True))
            found[row] = TokenLogprobs(tokens[row], chosen, pairs)
        return found


@dataclass(frozen=True, slots=True)
class LogprobWish:
    """The rows that ask for logprobs, [asking rows] on the host and where the logits are."""

    rows: tuple[int, ...]
    index: torch.Tensor
    wants_top: bool


def lay_out_logprobs(params: Sequence[SamplingParams]) -> LogprobWish | None:
    """Who asks; None if nobody does."""
    rows = tuple(row for row, each in enumerate(params) if each.num_logprobs is not None)
    if not rows:
        return None
    return LogprobWish(rows, torch.tensor(rows), any(params[row].num_logprobs for row in rows))


def row_logprobs(logits: torch.Tensor, tokens: torch.Tensor, wish: LogprobWish) -> RowLogprobs:
    """Logprobs of `tokens` under softmax of the model's own `logits`, for those who ask."""
    asking = logits[wish.index]
    peak = asking.amax(dim=-1, keepdim=True)
    total = inverse_cdf.mass(torch.sub(asking, peak).exp_())[:, None].log() + peak.double()
    chosen = asking.gather(1, tokens[wish.index][:, None])
    # The same number for all who ask for any, or equals would come in another order among others.
    count = min(MAX_TOP_LOGPROBS, logits.shape[1]) if wish.wants_top else 0
    top, top_ids = inverse_cdf.likeliest(asking, count)
    return RowLogprobs(wish.rows, (chosen - total)[:, 0], top - total, top_ids)
