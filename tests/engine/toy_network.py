"""A network of a few tensor operations whose logits depend on every token before, and where it lies.

A key is the token itself, a value its position. A sequence's state is a sum over all its keys and
values, exact in any order; each state has its logits. Whoever reads one wrong cell says something else,
and whoever reads one that is not finite says nothing.
"""

from __future__ import annotations

from typing import cast

import torch

from engine.batch import Batch
from engine.cache import CacheFormat, KVCache
from engine.cache_layout import TOKEN_MAJOR, LayerShape
from engine.network import Network
from tests.engine.tiny_model import VOCAB_SIZE

_NUM_STATES = 997
#: What a token takes in the cache: two float32.
TOKEN_BYTES = 8


class ToyNetwork:
    """Stands in for a Network."""

    layers = {0: LayerShape(num_heads=1, key_width=1, value_width=1)}  # noqa: RUF012 - never changed
    vocab_size = VOCAB_SIZE
    max_position = 1024
    is_exact = True
    device = torch.device("cpu")
    cache_format = CacheFormat(layout=TOKEN_MAJOR)

    def __init__(self) -> None:
        shape = _NUM_STATES, VOCAB_SIZE
        self._logits = torch.randn(shape, generator=torch.Generator().manual_seed(6)) * 3

    def forward(self, batch: Batch, cache: KVCache) -> torch.Tensor:
        new = (batch.input_ids.float()[:, None, None], batch.positions.float()[:, None, None])
        cache.write(0, batch.slots, *new)
        tokens, positions = (kept[batch.block_tables.long()].flatten(1).double() for kept in cache.layer(0))
        is_read = torch.arange(tokens.shape[1]) < batch.lengths[:, None]
        states = torch.where(is_read, (tokens + 1) * (positions + 7), 0).sum(dim=1)
        owners = torch.searchsorted(batch.row_starts[1:], batch.sample_rows.int(), right=True)
        sampled = states[owners]
        logits = self._logits[sampled.nan_to_num().long() % _NUM_STATES]
        return torch.where(sampled.isfinite()[:, None], logits, torch.nan)


def toy_network() -> Network:
    return cast(Network, ToyNetwork())
