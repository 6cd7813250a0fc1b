"""Loads transformers' own network and runs it on our cache."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import structlog
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.utils import logging as transformers_logging

from engine.attention.choice import choose_attention
from engine.config import AttentionName, Quantization
from engine.gate import ROUNDED, check_exactness, own_logits, refuse_by_config, use_paged_attention
from engine.linear import pack_linears
from engine.network import Network
from engine.protocol import ModelRefused

#: Lengths of the two prompts that every model must get right before it may serve.
_TRIAL_LENGTHS = (7, 3)


_CPU = torch.device("cpu")

_log = structlog.get_logger(__name__)


def load_network(
    folder: Path,
    *,
    quantize: Quantization | None = None,
    device: torch.device = _CPU,
    dtype: torch.dtype = torch.float32,
    attention: AttentionName = "auto",
    block_size: int = 16,
) -> Network:
    """Load a checkpoint folder to this device and in these numbers, or raise ModelRefused with the reason.

    `quantize`, `attention` and `block_size` are those of `network_around`.
    """
    transformers_logging.disable_progress_bar()
    try:
        config = AutoConfig.from_pretrained(folder)
    except (ValueError, OSError, KeyError) as error:
        raise ModelRefused(f"{folder.name} has a configuration transformers cannot read: {error}") from error
    refuse_by_config(config)
    with torch.inference_mode():
        model = _load(folder, config, dtype).to(device)
        return network_around(model, quantize=quantize, attention=attention, block_size=block_size)


def network_around(
    model: PreTrainedModel,
    *,
    quantize: Quantization | None = None,
    attention: AttentionName = "auto",
    block_size: int = 16,
) -> Network:
    """Make a network of a model where it is and in the numbers it has; ModelRefused if it is not exact.

    The model is changed. `attention` must read caches in blocks of `block_size`. With `quantize`
    the linear layers, but for the head, compute in integers.
    """
    refuse_by_config(model.config)
    on_cpu = model.device.type == "cpu" and model.dtype == torch.float32
    if quantize is not None and not on_cpu:
        raise ModelRefused(f"quantize {quantize} is for the CPU in float32; leave it out on {model.device}")
    model.eval()
    with torch.inference_mode():
        text = model.config.get_text_config(decoder=True)
        vocab_size = int(model.get_input_embeddings().num_embeddings)
        trial = [[(7 * i + n) % vocab_size for i in range(n)] for n in _TRIAL_LENGTHS]
        expected = own_logits(model, trial)
        demands = use_paged_attention(model)
        network = Network(
            model=model,
            layers={layer: demand.shape for layer, demand in demands.items()},
            attention=choose_attention(
                demands.values(),
                device=model.device,
                dtype=model.dtype,
                block_size=block_size,
                wished=attention,
            ),
            max_position=getattr(text, "max_position_embeddings", None),
            vocab_size=vocab_size,
            is_exact=False,
        )
        check = partial(check_exactness, prompts=trial, expected=expected, block_size=block_size)
        if on_cpu:
            return _prepared_for_cpu(network, quantize, check)
        check(network)
        return network


def _load(folder: Path, config: PreTrainedConfig, dtype: torch.dtype) -> PreTrainedModel:
    try:
        model, report = AutoModelForCausalLM.from_pretrained(
            folder, config=config, dtype=dtype, output_loading_info=True
        )
    except (ValueError, OSError, KeyError, ImportError) as error:
        raise ModelRefused(f"{folder.name} cannot be loaded: {error}") from error
    missing = sorted(report["missing_keys"])
    if missing:
        raise ModelRefused(f"{folder.name} lacks weights ({', '.join(missing[:3])} …); they would be random")
    if "logits_to_keep" not in inspect.signature(model.forward).parameters:
        raise ModelRefused(f"{type(model).__name__} cannot compute logits for chosen rows only")
    loaded: PreTrainedModel = model
    return loaded


def _prepared_for_cpu(network: Network, quantize: Quantization | None, check: Callable[..., None]) -> Network:
    """Lay the network out for the CPU in float32, checked before and after its numbers are rounded."""
    model = network.model
    _use_own_activations(model)
    if quantize is not None:
        # What the model is must be right before its numbers are rounded.
        check(network)
        _quantize(model)
    is_packed = pack_linears(model)
    # Only this attention keeps a row's last bits from its neighbours.
    network = replace(network, is_exact=is_packed and network.attention.name == "cpu")
    _leave_file(model)
    check(network, tolerance=None if quantize is None else ROUNDED)
    return network


# Both need numba, which may be missing: then the network is slower, and rounds by company.
def _use_own_activations(model: PreTrainedModel) -> None:
    try:
        from engine.activation import use_rowwise_activations
    except ImportError as error:
        _log.warning("activations_not_replaced", reason=str(error))
    else:
        use_rowwise_activations(model)


def _quantize(model: PreTrainedModel) -> None:
    try:
        from engine.quantize import quantize_linears
    except ImportError as error:
        raise ModelRefused(f"quantize needs numba, which is missing ({error})") from error
    quantize_linears(model, head=model.get_output_embeddings())


def _leave_file(model: PreTrainedModel) -> None:
    """Copy what the packed layers left where it was loaded, in a mapped file.

    One tensor that still lies in the file would keep all of it in memory, beside the packed copies.
    """
    for tensor in (*model.parameters(), *model.buffers()):
        # An ordinary tensor stays one, which may be changed in place.
        with torch.inference_mode(tensor.is_inference()):
            tensor.data = tensor.data.clone()
