"""Loads transformers' own network and runs it on our cache."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.utils import logging as transformers_logging

from engine.activation import use_rowwise_activations
from engine.attention.choice import choose_attention
from engine.config import Quantization
from engine.gate import EXACT, ROUNDED, check_exactness, own_logits, refuse_by_config, use_paged_attention
from engine.layer_fusing import fuse_layers
from engine.linear import pack_linears
from engine.network import Network
from engine.protocol import ModelRefused
from engine.quantize import quantize_linears

#: Lengths of the two prompts that every model must get right before it may serve.
_TRIAL_LENGTHS = (7, 3)


def load_network(folder: Path, *, quantize: Quantization | None = None) -> Network:
    """Load a checkpoint folder in float32, or raise ModelRefused with the reason.

    With `quantize` the linear layers, but for the head, compute in integers.
    """
    transformers_logging.disable_progress_bar()
    try:
        config = AutoConfig.from_pretrained(folder)
    except (ValueError, OSError, KeyError) as error:
        raise ModelRefused(f"{folder.name} has a configuration transformers cannot read: {error}") from error
    refuse_by_config(config)
    with torch.inference_mode():
        return _prepared(_load(folder, config), quantize)


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


def _prepared(model: PreTrainedModel, quantize: Quantization | None) -> Network:
    text = model.config.get_text_config(decoder=True)
    vocab_size = int(model.get_input_embeddings().num_embeddings)
    trial = [[(7 * i + n) % vocab_size for i in range(n)] for n in _TRIAL_LENGTHS]
    expected = own_logits(model, trial)
    network = Network(
        model=model,
        layers=use_paged_attention(model),
        attention=choose_attention(),
        max_position=getattr(text, "max_position_embeddings", None),
        vocab_size=vocab_size,
        is_exact=False,
    )
    use_rowwise_activations(model)
    if quantize == "int8":
        # What the model is must be right before its numbers are rounded.
        check_exactness(network, trial, expected)
        quantize_linears(model, head=model.get_output_embeddings())
    else:
        fuse_layers(model)
    network = replace(network, is_exact=pack_linears(model))
    _leave_file(model)
    check_exactness(network, trial, expected, tolerance=EXACT if quantize is None else ROUNDED)
    return network


def _leave_file(model: PreTrainedModel) -> None:
    """Copy what the packed layers left where it was loaded, in a mapped file.

    One tensor that still lies in the file would keep all of it in memory, beside the packed copies.
    """
    for tensor in (*model.parameters(), *model.buffers()):
        # An ordinary tensor stays one, which may be changed in place.
        with torch.inference_mode(tensor.is_inference()):
            tensor.data = tensor.data.clone()
