"""Our attention as transformers sees it: registered under our own name.

transformers' layers call `paged_attention` with the step's rows; which rows belong to which
sequence comes from the forward context, since some families drop extra arguments on the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from transformers import AttentionInterface

from engine.attention.attention import Forward
from engine.attention.probe import ShapeProbe
from engine.attention.scoring import Scoring
from engine.protocol import EngineError

#: The name under which transformers finds our attention.
ATTENTION_NAME = "headrace_paged"


_forward: ContextVar[Forward] = ContextVar("headrace_forward")


@contextmanager
def forward_context(forward: Forward) -> Iterator[None]:
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
        forward.note(module, attention_mask)
    rows = (query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1))
    return forward.attend(layer, *rows, scoring)[None], None


AttentionInterface.register(ATTENTION_NAME, paged_attention)
