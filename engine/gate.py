"""Refuses models that this engine would not compute exactly, each with its reason.

What the configuration gives away is refused from it; the rest is found by asking: which
layers call our attention, and whether two short prompts computed together and in pieces
give what the model's own attention gives for each alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from engine.attention.demand import LayerDemand
from engine.attention.interface import ATTENTION_NAME, forward_context
from engine.attention.probe import ShapeProbe
from engine.batch import build_batch
from engine.block_manager import BlockManager
from engine.cache import KVCache
from engine.network import Network
from engine.plan import Span, StepPlan
from engine.protocol import EngineRequest, ModelRefused
from engine.sequence import Sequence

_EXACT_LAYER_TYPES = frozenset({"full_attention", "sliding_attention", "sparse", "dense", "moe"})
#: These take the longest position of a whole step into account, and so depend on batch mates.
_BATCH_DEPENDENT_ROPE = frozenset({"dynamic", "longrope"})
#: Largest difference to the model's own logits, as a share of the largest logit: what rounding adds up to.
_EXACT = {torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}
#: The same for a network in integers: a sign that it runs, not that it is good.
ROUNDED = 0.5


def refuse_by_config(config: PreTrainedConfig) -> None:
    """Raise ModelRefused if the configuration names something that cannot be exact."""
    text = config.get_text_config(decoder=True)
    if config.is_encoder_decoder:
        raise ModelRefused("it is an encoder-decoder model; only decoder-only models run here")
    for name in _rope_types(text):
        if name in _BATCH_DEPENDENT_ROPE:
            raise ModelRefused(f"its {name} RoPE would make a text depend on what runs beside it")
    layer_types = set(getattr(text, "layer_types", None) or ())
    if "chunked_attention" in layer_types or getattr(text, "attention_chunk_size", None):
        raise ModelRefused("it uses chunked attention, which the cache does not keep")
    if not layer_types <= _EXACT_LAYER_TYPES:
        kinds = ", ".join(sorted(layer_types - _EXACT_LAYER_TYPES))
        raise ModelRefused(f"it has layers that keep a state of their own ({kinds})")
    if getattr(text, "use_bidirectional_attention", False):
        raise ModelRefused("its attention looks ahead")


def use_paged_attention(model: PreTrainedModel) -> dict[int, LayerDemand]:
    """Make the model call our attention, and say what each layer demands; ModelRefused if it will not."""
    kind = type(model).__name__
    if not model._can_set_attn_implementation():
        raise ModelRefused(f"{kind} does not go through transformers' attention interface")
    model.set_attn_implementation(ATTENTION_NAME)
    if model.config._attn_implementation != ATTENTION_NAME:
        raise ModelRefused(f"{kind} keeps its own attention")
    # Nothing is padded here. Some families look for padding in every step, and the host waits for it.
    model.config.pad_token_id = None
    probe = ShapeProbe()
    two = torch.tensor([[0, 1]], device=model.device)
    try:
        with forward_context(probe):
            model(input_ids=two, position_ids=two, use_cache=False)
    except Exception as error:
        raise ModelRefused(f"{kind} cannot run on our attention: {error}") from error
    num_layers = model.config.get_text_config(decoder=True).num_hidden_layers
    if len(probe.demands) != num_layers:
        raise ModelRefused(
            f"only {len(probe.demands)} of the {num_layers} layers of {kind} use the attention interface; "
            "the others keep a state of their own"
        )
    if probe.faults:
        raise ModelRefused(f"{kind} cannot be exact: {probe.faults[0]}")
    return probe.demands


def own_logits(model: PreTrainedModel, prompts: list[list[int]]) -> torch.Tensor:
    """The last logits [prompts, vocabulary] by the model's own attention, one prompt at a time."""
    try:
        tensors = [torch.tensor([ids], device=model.device) for ids in prompts]
        rows = [model(input_ids=ids, use_cache=False).logits[0, -1] for ids in tensors]
    except Exception as error:
        raise ModelRefused(f"{type(model).__name__} cannot run at all: {error}") from error
    return torch.stack(rows).float()


def check_exactness(
    network: Network,
    prompts: list[list[int]],
    expected: torch.Tensor,
    *,
    block_size: int,
    tolerance: float | None = None,
) -> None:
    """Raise ModelRefused unless two prompts run together, in pieces, give the expected logits.

    `tolerance` None is what fits the numbers that the network computes in.
    """
    if tolerance is None:
        tolerance = _EXACT[network.model.dtype]
    blocks = BlockManager(num_blocks=len(prompts), block_size=block_size)
    cache = KVCache(
        network.layers, num_blocks=blocks.num_blocks, block_size=block_size, format=network.cache_format
    )
    first, second = (
        Sequence(EngineRequest(id=str(index), token_ids=ids, max_tokens=1), arrival=index)
        for index, ids in enumerate(prompts)
    )
    blocks.book(first)
    blocks.book(second)
    head, tail = len(first.token_ids) // 2, len(first.token_ids) - len(first.token_ids) // 2
    kind = type(network.model).__name__
    try:
        for spans in (
            (Span(first, 0, head),),
            (Span(first, head, tail), Span(second, 0, len(second.token_ids))),
        ):
            batch = build_batch(StepPlan(spans), block_size=block_size).to(network.device)
            logits = network.forward(batch, cache)
    except Exception as error:
        raise ModelRefused(f"{kind} cannot run on our kernels: {error}") from error
    difference = (logits - expected).abs().max() / (1 + expected.abs().max())
    if not difference <= tolerance:
        raise ModelRefused(
            f"{kind} gives other logits here than alone (off by {difference:.1e}); "
            "its attention does something the interface does not show"
        )


def _rope_types(config: PreTrainedConfig) -> Iterator[str]:
    """Every RoPE kind named: one for all layers, or one per kind of layer."""
    for name in ("rope_parameters", "rope_scaling"):
        declared = getattr(config, name, None)
        if isinstance(declared, Mapping):
            for entry in (declared, *declared.values()):
                yield from _rope_type(entry)


def _rope_type(entry: Any) -> Iterator[str]:
    if isinstance(entry, Mapping):
        name = entry.get("rope_type", entry.get("type"))
        if isinstance(name, str):
            yield name
