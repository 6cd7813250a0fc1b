"""Whether logits are as right as their numbers allow, told by a reference in wider ones."""

from __future__ import annotations

from dataclasses import dataclass

import torch

#: How many times the error of transformers' own network ours may be.
ALLOWED_RATIO = 2.0
#: In float32 both are off by a few roundings, and twice next to nothing says nothing: so much
#: of the largest logit always passes there.
_FLOAT32_SLACK = 2e-6


@dataclass(frozen=True, slots=True)
class Comparison:
    """Largest errors of ours and of transformers' own logits, and the rows whose likeliest token differs.

    `largest_gap` is the largest distance between the two likeliest tokens of the reference
    over those rows, 0 where there is none.
    """

    num_rows: int
    error: float
    their_error: float
    slack: float
    num_differing: int
    their_num_differing: int
    largest_gap: float

    @property
    def is_close(self) -> bool:
        """Whether ours is off by at most twice what theirs is; NaN is not."""
        return self.error <= self._allowed

    @property
    def differs_only_in_ties(self) -> bool:
        """Whether each other choice was between tokens closer than the error, as far as that is allowed."""
        return self.num_differing == 0 or self.largest_gap < min(self.error, self._allowed)

    @property
    def _allowed(self) -> float:
        return max(ALLOWED_RATIO * self.their_error, self.slack)


def compare(
    ours: torch.Tensor, theirs: torch.Tensor, reference: torch.Tensor, *, dtype: torch.dtype
) -> Comparison:
    """Compare logits [rows, vocabulary]; `dtype` is what the first two were computed in."""
    tops = reference.topk(2, dim=-1)
    differing = ours.argmax(dim=-1) != tops.indices[:, 0]
    gaps = (tops.values[:, 0] - tops.values[:, 1])[differing]
    is_float32 = dtype == torch.float32
    return Comparison(
        num_rows=len(reference),
        error=largest_difference(ours, reference),
        their_error=largest_difference(theirs, reference),
        slack=_FLOAT32_SLACK * float(reference.abs().max()) if is_float32 else 0.0,
        num_differing=int(differing.sum()),
        their_num_differing=int((theirs.argmax(dim=-1) != tops.indices[:, 0]).sum()),
        largest_gap=float(gaps.max()) if len(gaps) else 0.0,
    )


def largest_difference(left: torch.Tensor, right: torch.Tensor) -> float:
    """The largest absolute difference, row by row so that large tensors need no copy; NaN if any is."""
    rows = [(one.to(other.dtype) - other).abs().max() for one, other in zip(left, right, strict=True)]
    return float(torch.stack(rows).max())
