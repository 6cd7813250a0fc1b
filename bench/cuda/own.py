"""How the sections reach the engine: the one place that knows how it is put together."""

from __future__ import annotations

from collections.abc import Sequence as Listing
from dataclasses import asdict, fields
from pathlib import Path

import torch
from transformers import PreTrainedModel

from bench.cuda.byte_tokenizer import byte_tokenizer
from bench.cuda.setting import Setting
from bench.cuda.shape import twin
from bench.cuda.subject import Subject
from bench.cuda.unavailable import Unavailable
from engine.batch import build_batch
from engine.block_manager import BlockManager
from engine.cache import KVCache
from engine.config import EngineConfig
from engine.engine import TorchEngine, assemble_engine
from engine.model import _prepared
from engine.network import Network
from engine.plan import Span, StepPlan
from engine.sequence import Sequence

#: Prompt tokens computed in one step beside the decodes.
PROMPT_BUDGET = 8192
_BLOCK_SIZE = 16


def attentions(device: torch.device) -> tuple[str, ...]:
    return ("cpu",)


def own_network(model: PreTrainedModel, *, attention: str) -> Network:
    """Our network around this model, whose modules it may change; Unavailable if this attention is not there."""
    if attention not in ("cpu", "auto"):
        raise Unavailable("no")
    with torch.inference_mode():
        return _prepared(twin(model), None)


def own_engine(subject: Subject, setting: Setting, *, num_sequences: int, longest: int) -> TorchEngine:
    network = own_network(subject.model, attention=setting.attention)
    num_tokens = num_sequences * (longest + _BLOCK_SIZE) + 2 * _BLOCK_SIZE
    known = {field.name for field in fields(EngineConfig)}
    config = EngineConfig(
        model="random",
        cache_dir=Path(),
        max_num_seqs=num_sequences,
        max_model_len=longest,
        max_num_batched_tokens=PROMPT_BUDGET + num_sequences,
        kv_cache_bytes=num_tokens * subject.shape.kv_elements * subject.machine.dtype.itemsize,
        prefix_caching=False,
        **{k: v for k, v in asdict(setting).items() if k in known},
    )
    return assemble_engine(config, network=network, tokenizer=byte_tokenizer())


class StepRunner:
    """Runs given spans on a cache of its own, without scheduler and sampler."""

    def __init__(self, network: Network, *, lines: Listing[int], device: torch.device) -> None:
        self._network = network
        num_blocks = sum(-(-(length + 1) // _BLOCK_SIZE) for length in lines)
        self._blocks = BlockManager(num_blocks, block_size=_BLOCK_SIZE)
        self._cache = KVCache(network.layers, num_blocks=num_blocks, block_size=_BLOCK_SIZE)

    def book(self, sequence: Sequence) -> None:
        self._blocks.book(sequence)

    def run(self, spans: tuple[Span, ...], step: int) -> tuple[list[Sequence], torch.Tensor]:
        """The sequences that sample in this step, and their logits in that order."""
        batch = build_batch(StepPlan(spans, step=step), block_size=_BLOCK_SIZE)
        with torch.inference_mode():
            logits = self._network.forward(batch, self._cache)
        return [span.sequence for span in batch.sampling_spans], logits
