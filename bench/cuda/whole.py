"""Logits of given tokens by transformers alone, each line in one piece."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from bench.cuda.forced import Forced


def whole_logits(model: PreTrainedModel, lines: Sequence[Forced]) -> torch.Tensor:
    """Logits [lines, following + 1, vocabulary] of the prompts' last and all following tokens.

    In float64 if the model is, else in float32. All lines have as many following tokens.
    """
    wide = torch.float64 if model.dtype == torch.float64 else torch.float32
    rows = []
    with torch.inference_mode():
        for line in lines:
            ids = torch.tensor([line.token_ids], device=model.device)
            output = model(input_ids=ids, use_cache=False, logits_to_keep=len(line.following) + 1)
            rows.append(output.logits[0].to(wide))
    return torch.stack(rows)
