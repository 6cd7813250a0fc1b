"""A loaded network, ready to compute steps on our cache."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from engine.attention.attention import Attention
from engine.attention.interface import forward_context
from engine.batch import Batch
from engine.cache import CacheFormat, KVCache
from engine.cache_layout import LayerShape
from engine.protocol import EngineError


@dataclass(frozen=True, slots=True)
class Network:
    """transformers' model, what it keeps per layer, and its largest position and token id.

    `is_exact` says that a row's logits are the same, bit for bit, whatever is computed beside it.
    """

    model: PreTrainedModel
    layers: dict[int, LayerShape]
    attention: Attention
    max_position: int | None
    vocab_size: int
    is_exact: bool

    @property
    def device(self) -> torch.device:
        """Where it computes, and where batches must lie."""
        return self.cache_format.device

    @property
    def cache_format(self) -> CacheFormat:
        """The kind of cache that its attention reads."""
        return CacheFormat(self.attention.layout, self.model.dtype, self.model.device)

    def forward(self, batch: Batch, cache: KVCache) -> torch.Tensor:
        """Compute a step; logits [sampled rows, vocabulary] in float32.

        Nothing here waits for the device, so that a step on CUDA can be captured as a graph.
        """
        with forward_context(self.attention.start(batch, cache)):
            output = self.model(
                input_ids=batch.input_ids[None],
                position_ids=batch.positions[None],
                use_cache=False,
                logits_to_keep=batch.sample_rows,
            )
        logits = output.logits[0]
        if not isinstance(logits, torch.Tensor):
            raise EngineError(f"{type(self.model).__name__} returned no logits")
        return logits.float()
