"""How the sections reach the engine: the one place that knows how it is put together."""

from __future__ import annotations

from collections.abc import Sequence as Listing
from pathlib import Path

import torch
from transformers import PreTrainedModel

from bench.cuda.byte_tokenizer import byte_tokenizer
from bench.cuda.setting import Kernel, Setting, kernels_to_try
from bench.cuda.shape import twin
from bench.cuda.subject import Subject
from bench.cuda.unavailable import Unavailable
from engine.attention.choice import load_attention
from engine.batch import build_batch
from engine.block_manager import BlockManager
from engine.cache import KVCache
from engine.config import EngineConfig
from engine.engine import TorchEngine, assemble_engine
from engine.model import network_around
from engine.network import Network
from engine.plan import Span, StepPlan
from engine.protocol import ModelRefused
from engine.sequence import Sequence

#: Prompt tokens computed in one step beside the decodes.
PROMPT_BUDGET = 8192


def own_network(model: PreTrainedModel, kernel: Kernel) -> Network:
    """Our network around this model's weights; Unavailable if this kernel cannot be here.

    ModelRefused if it is here and computes something else than the model does.
    """
    try:
        load_attention(kernel.attention)
        return network_around(twin(model), attention=kernel.attention, block_size=kernel.block_size)
    except ImportError as lack:
        raise Unavailable(str(lack)) from lack
    except ModelRefused as refusal:
        if kernel.may_refuse:
            raise Unavailable(str(refusal)) from refusal
        raise


def served_kernel(subject: Subject) -> Kernel:
    """The first that serves this model here; RuntimeError, with all reasons, if none does."""
    if subject.served_kernel is None:
        subject.served_kernel = _first_usable(subject)
    return subject.served_kernel


def _first_usable(subject: Subject) -> Kernel:
    refusals = []
    for name, kernel in kernels_to_try(subject.machine.device.type).items():
        try:
            own_network(subject.model, kernel)
        except (Unavailable, ModelRefused) as refusal:
            refusals.append(f"{name}: {refusal}")
        else:
            return kernel
    # Every device has the plain one, if the engine is right at all.
    raise RuntimeError("; ".join(refusals))


def own_engine(subject: Subject, setting: Setting, *, num_sequences: int, longest: int) -> TorchEngine:
    """An engine with room for so many sequences of `longest` tokens, prompt and output together."""
    machine, block_size = subject.machine, setting.kernel.block_size
    num_blocks = num_sequences * -(-longest // block_size) + 1
    num_bytes = num_blocks * block_size * subject.shape.kv_elements * machine.dtype.itemsize
    machine.require(num_bytes, f"the cache for {num_sequences} sequences")
    config = EngineConfig(
        model="random",
        cache_dir=Path(),
        max_num_seqs=num_sequences,
        max_model_len=longest,
        max_num_batched_tokens=PROMPT_BUDGET + num_sequences,
        block_size=block_size,
        kv_cache_bytes=num_bytes,
        prefix_caching=False,
        attention=setting.kernel.attention,
        device=machine.device_name,
        overlap=setting.overlap,
        cuda_graphs=setting.cuda_graphs,
        half_batches=setting.half_batches,
    )
    network = own_network(subject.model, setting.kernel)
    try:
        return assemble_engine(config, network=network, tokenizer=byte_tokenizer())
    except ModelRefused as refusal:
        # The network is right: what an engine refuses beyond that is for lack of memory.
        raise Unavailable(str(refusal)) from refusal


class StepRunner:
    """Runs given spans on a cache of its own, without scheduler and sampler.

    `lengths` are the most tokens that each sequence will have.
    """

    def __init__(self, network: Network, *, lengths: Listing[int], block_size: int) -> None:
        self._network = network
        self._block_size = block_size
        num_blocks = sum(-(-length // block_size) for length in lengths)
        self._blocks = BlockManager(num_blocks, block_size=block_size)
        self._cache = KVCache(
            network.layers, num_blocks=num_blocks, block_size=block_size, format=network.cache_format
        )

    def book(self, sequence: Sequence) -> None:
        """Give a sequence the blocks for all it will have."""
        self._blocks.book(sequence)

    def run(self, spans: tuple[Span, ...]) -> tuple[list[Sequence], torch.Tensor]:
        """The sequences that sample in this step, and their logits in that order."""
        batch = build_batch(StepPlan(spans), block_size=self._block_size).to(self._network.device)
        with torch.inference_mode():
            logits = self._network.forward(batch, self._cache)
        return [span.sequence for span in batch.sampling_spans], logits
