"""Loads transformers' own network and runs it on our cache."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.utils import logging as transformers_logging

from engine.attention import PagedForward, forward_context
from engine.batch import Batch
from engine.cache import KVCache, LayerShape
from engine.gate import check_exactness, own_logits, refuse_by_config, use_paged_attention
from engine.protocol import EngineError, ModelRefused

#: Lengths of the two prompts that every model must get right before it may serve.
_TRIAL_LENGTHS = (7, 3)


@dataclass(frozen=True, slots=True)
class Network:
    """A loaded model: what it keeps per layer, and its largest position and token id."""

    model: PreTrainedModel
    layers: dict[int, LayerShape]
    max_position: int | None
    vocab_size: int

    def forward(self, batch: Batch, cache: KVCache) -> torch.Tensor:
        """Compute a step; logits [sampled rows, vocabulary] in float32."""
        with forward_context(PagedForward(batch, cache)):
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


def load_network(folder: Path) -> Network:
    """Load a checkpoint folder in float32, or raise ModelRefused with the reason."""
    transformers_logging.disable_progress_bar()
    try:
        config = AutoConfig.from_pretrained(folder)
    except (ValueError, OSError, KeyError) as error:
        raise ModelRefused(f"{folder.name} has a configuration transformers cannot read: {error}") from error
    refuse_by_config(config)
    with torch.inference_mode():
        return _prepared(_load(folder, config))


def _load(folder: Path, config: PreTrainedConfig) -> PreTrainedModel:
    try:
        model, report = AutoModelForCausalLM.from_pretrained(
            folder, config=config, dtype=torch.float32, output_loading_info=True
        )
    except (ValueError, OSError, KeyError, ImportError) as error:
        raise ModelRefused(f"{folder.name} cannot be loaded: {error}") from error
    missing = sorted(report["missing_keys"])
    if missing:
        raise ModelRefused(f"{folder.name} lacks weights ({', '.join(missing[:3])} …); they would be random")
    if "logits_to_keep" not in inspect.signature(model.forward).parameters:
        raise ModelRefused(f"{type(model).__name__} cannot compute logits for chosen rows only")
    loaded: PreTrainedModel = model.eval()
    return loaded


def _prepared(model: PreTrainedModel) -> Network:
    text = model.config.get_text_config(decoder=True)
    vocab_size = int(model.get_input_embeddings().num_embeddings)
    trial = [[(7 * i + n) % vocab_size for i in range(n)] for n in _TRIAL_LENGTHS]
    expected = own_logits(model, trial)
    layers = use_paged_attention(model)
    check_exactness(model, layers, trial, expected)
    return Network(
        model=model,
        layers=layers,
        max_position=getattr(text, "max_position_embeddings", None),
        vocab_size=vocab_size,
    )
