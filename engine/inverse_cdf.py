"""Reads whole rows of the vocabulary in pieces: their peaks, their likeliest, their draw.

A row is cut into pieces of 128 tokens. One pass makes a number of each piece (its largest, its
sum); the rest works on those few, and on the pieces they point at.

    row      |..piece 0..|..piece 1..|..piece 2..|
    sums     |    0.1    |    0.7    |    0.2    |     target 0.35 falls into piece 1,
    within               |..token t..|                 and there on the token where 0.25 falls

A row's result depends on that row alone: every sum has an order that no other row changes.
"""

from __future__ import annotations

import torch
from torch.nn.functional import pad

#: Tokens in a piece. One size for all: a row must be summed alike whoever runs beside.
_PIECE_TOKENS = 128


def peaks(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Largest logit of each row and the first token that has it; NaN where a row has one."""
    pieces = _in_pieces(logits, filling=float("-inf"))
    piece = pieces.amax(dim=-1).argmax(dim=-1)
    inside = _pick(pieces, piece)
    offset = inside.argmax(dim=-1)
    tokens = piece * _PIECE_TOKENS + offset
    return inside.gather(1, offset[:, None])[:, 0], tokens.clamp_(max=logits.shape[1] - 1)


def likeliest(logits: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The `count` largest logits of each row, largest first, and their tokens."""
    pieces = _in_pieces(logits, filling=float("-inf"))
    if pieces.shape[1] <= count:
        return logits.topk(count, dim=-1)
    # The largest are all in the pieces with the largest peaks: each of those holds one of them.
    best = pieces.amax(dim=-1).topk(count, dim=-1).indices
    rows = torch.arange(len(logits), device=logits.device)[:, None]
    values, places = pieces[rows, best].flatten(1).topk(count, dim=-1)
    tokens = best.gather(1, places // _PIECE_TOKENS) * _PIECE_TOKENS + places % _PIECE_TOKENS
    return values, tokens


def mass(weights: torch.Tensor) -> torch.Tensor:
    """Sum of each row, in float64."""
    return _cumulative(_in_pieces(weights, filling=0))[:, -1]


def draw_whole(weights: torch.Tensor, chances: torch.Tensor) -> torch.Tensor:
    """The token of each row on which its chance in [0, 1) falls; weights need not sum to 1."""
    pieces = _in_pieces(weights, filling=0)
    cumulative = _cumulative(pieces)
    targets = _below(chances * cumulative[:, -1], cumulative[:, -1])
    piece = _find(cumulative, targets)
    before = torch.where(piece > 0, cumulative.gather(1, (piece - 1).clamp(min=0)[:, None])[:, 0], 0)
    within = _pick(pieces, piece).cumsum(dim=-1, dtype=torch.float64)
    # The piece's sum in float32 and in float64 differ in the last digits: stay inside of it.
    offset = _find(within, _below(targets - before, within[:, -1]))
    return (piece * _PIECE_TOKENS + offset).clamp_(max=weights.shape[1] - 1)


def draw_few(weights: torch.Tensor, chances: torch.Tensor) -> torch.Tensor:
    """The column of each row on which its chance falls; for rows that are summed one by one."""
    cumulative = weights.cumsum(dim=-1, dtype=torch.float64)
    return _find(cumulative, _below(chances * cumulative[:, -1], cumulative[:, -1]))


def _below(targets: torch.Tensor, totals: torch.Tensor) -> torch.Tensor:
    """Keep targets below their totals, so that the last one with a weight is the last to be drawn."""
    return torch.minimum(targets, torch.nextafter(totals, torch.zeros_like(totals)))


def _find(cumulative: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    found = torch.searchsorted(cumulative, targets[:, None], right=True)[:, 0]
    # Beyond the end only for rows that are not finite, which have no token anyway.
    return found.clamp_(max=cumulative.shape[1] - 1)


def _in_pieces(rows: torch.Tensor, *, filling: float) -> torch.Tensor:
    """[rows, pieces, tokens]; the last piece is filled up with what nothing ever falls on."""
    missing = -rows.shape[1] % _PIECE_TOKENS
    filled = pad(rows, (0, missing), value=filling) if missing else rows
    return filled.reshape(len(rows), -1, _PIECE_TOKENS)


def _cumulative(pieces: torch.Tensor) -> torch.Tensor:
    return pieces.sum(dim=-1).cumsum(dim=-1, dtype=torch.float64)


def _pick(pieces: torch.Tensor, which: torch.Tensor) -> torch.Tensor:
    return pieces[torch.arange(len(pieces), device=pieces.device), which]
