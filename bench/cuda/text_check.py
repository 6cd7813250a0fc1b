"""Whether texts that the whole engine wrote are those that wider numbers would have written, but for ties."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from bench.cuda.asking import Answers
from bench.cuda.comparison import ALLOWED_RATIO
from bench.cuda.forced import Forced
from bench.cuda.subject import Subject
from bench.cuda.whole import whole_logits
from bench.workload import Workload

#: Likeliest tokens whose logprobs are compared, at every position.
NUM_LOGPROBS = 20
#: Where both compute in float32, so much always passes: a few roundings of a large logprob.
_FLOAT32_SLACK = 5e-5


@dataclass(frozen=True, slots=True)
class TextCheck:
    """Largest errors of the likeliest tokens' logprobs, ours and transformers', and what was drawn otherwise.

    `largest_loss` is how much likelier than a token that we drew another was, at the most, in
    the reference's logprobs.
    """

    num_tokens: int
    error: float
    their_error: float
    slack: float
    num_differing: int
    largest_loss: float

    @property
    def is_right(self) -> bool:
        """Whether the error is at most twice theirs, and all that was drawn within it.

        A likelier token is passed over only if the errors of both together reach the distance.
        """
        allowed = max(ALLOWED_RATIO * self.their_error, self.slack)
        return self.error <= allowed and self.largest_loss <= 2 * self.error

    def __str__(self) -> str:
        return (
            f"error {self.error:.3g}, transformers' {self.their_error:.3g}; {self.num_differing} of "
            f"{self.num_tokens} tokens differ, {self.largest_loss:.3g} less likely at the most"
        )


def check_texts(subject: Subject, workload: Workload, answers: Answers) -> TextCheck:
    """Follow each text with the reference and with transformers' own network, prompt and tokens given."""
    pieces = [_Piece(*piece) for piece in _pieces(subject, workload, answers)]
    errors = torch.stack([(piece.ours - piece.reference).abs().max() for piece in pieces])
    their_errors = torch.stack([(piece.theirs - piece.reference).abs().max() for piece in pieces])
    losses = torch.cat([piece.best - piece.reference[:, 0] for piece in pieces])
    is_float32 = subject.machine.dtype == torch.float32
    return TextCheck(
        num_tokens=len(losses),
        error=float(errors.max()),
        their_error=float(their_errors.max()),
        slack=_FLOAT32_SLACK if is_float32 else 0.0,
        num_differing=int((losses > 0).sum()),
        largest_loss=float(losses.max()),
    )


@dataclass(frozen=True, slots=True)
class _Piece:
    """Logprobs [tokens, likeliest] of one text; `best` [tokens] is the reference's largest."""

    ours: torch.Tensor
    theirs: torch.Tensor
    reference: torch.Tensor
    best: torch.Tensor


def _pieces(
    subject: Subject, workload: Workload, answers: Answers
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]]:
    device, dtype = subject.machine.device, subject.machine.reference_dtype
    for line, tokens, logprobs in zip(workload.lines, answers.token_ids, answers.logprobs, strict=True):
        # What was drawn comes first; among equals it need not be the first of the likeliest.
        rows = [((each.token_id, each.logprob), *each.top) for each in logprobs]
        pairs = torch.tensor(rows, dtype=torch.float64, device=device)
        ids, ours = pairs[..., 0].long(), pairs[..., 1].to(dtype)
        if ids[:, 0].tolist() != tokens or (ours[:, 0] < ours.amax(dim=1)).any():
            raise RuntimeError("what was drawn is not what was said to be likeliest")
        forced = [Forced(line.token_ids, tokens[:-1])]
        reference, theirs = (
            whole_logits(model, forced)[0].to(dtype).log_softmax(dim=-1)
            for model in (subject.reference, subject.model)
        )
        yield ours, theirs.gather(1, ids), reference.gather(1, ids), reference.amax(dim=-1)
