"""Attention over the paged cache, registered with transformers under our own name.

transformers' layers call `paged_attention` with the step's rows; which rows belong to which
sequence comes from the forward context, since some families drop extra arguments on the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AttentionInterface

from engine.batch import AttentionGroup, Batch
from engine.cache import KVCache, LayerShape
from engine.protocol import EngineError

#: The name under which transformers finds our attention.
ATTENTION_NAME = "headrace_paged"


@dataclass(frozen=True, slots=True)
class Scoring:
    """How one layer scores keys: scale, window in tokens, soft cap, and sinks, one per head."""

    scale: float
    window: int | None = None
    softcap: float | None = None
    sinks: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class PagedForward:
    """The forward pass of one step: where its rows are written and what they attend to."""

    batch: Batch
    cache: KVCache

    def attend(
        self, layer: int, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scoring: Scoring
    ) -> torch.Tensor:
        """Keep keys and values [rows, heads, width], then answer the queries, [rows, H, width]."""
        self.cache.write(layer, self.batch.slots, keys, values)
        parts = []
        for group in self.batch.groups:
            rows = query[group.first_row : group.first_row + group.num_rows]
            parts.append(attend_group(rows, *self.cache.read(layer, group.slots), group, scoring))
        return torch.cat(parts)


_forward: ContextVar[PagedForward | ShapeProbe] = ContextVar("headrace_forward")


@contextmanager
def forward_context(forward: PagedForward | ShapeProbe) -> Iterator[None]:
    """Make every attention layer called inside belong to this forward pass."""
    token = _forward.set(forward)
    try:
        yield
    finally:
        _forward.reset(token)


def paged_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """transformers' attention signature: query [1, H, T, D], key and value [1, Hkv, T, D]."""
    forward = _forward.get()
    scale = options.get("scaling")
    scoring = Scoring(
        scale=query.shape[-1] ** -0.5 if scale is None else float(scale),
        window=options.get("sliding_window"),
        softcap=options.get("softcap"),
        sinks=options.get("s_aux"),
    )
    layer = module.layer_idx
    if not isinstance(layer, int):
        raise EngineError(f"{type(module).__name__} does not say which layer it is")
    if isinstance(forward, ShapeProbe):
        forward.note(module, key, value, attention_mask)
    rows = (query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1))
    return forward.attend(layer, *rows, scoring)[None], None


def attend_group(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, group: AttentionGroup, scoring: Scoring
) -> torch.Tensor:
    """Softmax attention of B sequences' new tokens, in plain torch.

    Query heads that share a KV head are folded into the rows of one product:
    [B, Hkv, G x n, D] times [B, Hkv, D, L], so keys are never repeated.
    """
    num_seqs, num_new = group.positions.shape
    num_kv_heads, width = keys.shape[2], query.shape[-1]
    folded = query.view(num_seqs, num_new, num_kv_heads, -1, width).permute(0, 2, 3, 1, 4)
    num_shared = folded.shape[2]
    flat = folded.reshape(num_seqs, num_kv_heads, num_shared * num_new, width)

    scores = torch.matmul(flat * scoring.scale, keys.permute(0, 2, 3, 1))
    if scoring.softcap is not None:
        scores = torch.tanh(scores / scoring.softcap) * scoring.softcap
    by_head = scores.view(num_seqs, num_kv_heads, num_shared, num_new, -1)
    by_head = by_head.masked_fill(group.hidden(scoring.window)[:, None, None], float("-inf"))
    weights = _softmax(by_head, scoring.sinks).view_as(scores)

    answer = torch.matmul(weights, values.permute(0, 2, 1, 3))
    answer = answer.view(num_seqs, num_kv_heads, num_shared, num_new, -1).permute(0, 3, 1, 2, 4)
    return answer.reshape(num_seqs * num_new, num_kv_heads * num_shared, -1)


def _softmax(scores: torch.Tensor, sinks: torch.Tensor | None) -> torch.Tensor:
    """Weights over the keys; a sink takes part in the sum but has no value to give."""
    if sinks is None:
        return torch.softmax(scores, dim=-1)
    num_seqs, num_kv_heads, num_shared, num_new, _ = scores.shape
    sink = sinks.view(1, num_kv_heads, num_shared, 1, 1).expand(num_seqs, -1, -1, num_new, 1)
    return torch.softmax(torch.cat([scores, sink], dim=-1), dim=-1)[..., :-1].contiguous()


class ShapeProbe:
    """A forward pass that only notes what each layer would keep, and which layers ask at all."""

    def __init__(self) -> None:
        self.layers: dict[int, LayerShape] = {}
        self.faults: list[str] = []

    def note(
        self, module: torch.nn.Module, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None
    ) -> None:
        layer = int(module.layer_idx)  # type: ignore[arg-type]
        if layer in self.layers:
            self.faults.append(f"layer {layer} attends more than once")
        if mask is not None:
            self.faults.append("it brings its own attention mask")
        if getattr(module, "is_causal", True) is False:
            self.faults.append("its attention looks ahead")
        self.layers[layer] = LayerShape(key.shape[1], key.shape[3], value.shape[3])

    def attend(
        self, layer: int, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scoring: Scoring
    ) -> torch.Tensor:
        return query.new_zeros(query.shape[0], query.shape[1], values.shape[2])


AttentionInterface.register(ATTENTION_NAME, paged_attention)
