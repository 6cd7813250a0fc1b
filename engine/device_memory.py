"""Shares out a device's memory: what the largest step and the graphs need, and the cache with the rest.

| weights | largest step | graphs |            cache            | spare |
"""

from __future__ import annotations

from dataclasses import replace

import torch

from engine.batch import build_batch
from engine.cache import KVCache
from engine.config import EngineConfig
from engine.device import Device
from engine.draw import Draw
from engine.draw_table import lay_out_draws
from engine.network import Network
from engine.plan import StepPlan
from engine.protocol import ModelRefused
from engine.runner_choice import make_runner
from engine.sampler import choose
from engine.sampling import MAX_TOP_LOGPROBS, SamplingParams
from engine.tensors import tensors_of, with_tensors

#: Of what is free, the share that is left so: memory comes in pieces, and some of them fit nobody.
_SPARE_SHARE = 0.05

#: What costs the sampler most: every row is sorted, penalised and asked for its logprobs.
_DEAREST = SamplingParams(top_p=0.9, repetition_penalty=1.1, num_logprobs=MAX_TOP_LOGPROBS)


def free_cache_bytes(config: EngineConfig, network: Network, device: Device, *, max_length: int) -> int:
    """What a cache can have: the memory that is free, less the largest step, the graphs and a spare.

    ModelRefused if that is nothing.
    """
    cache = KVCache(network.layers, num_blocks=1, block_size=config.block_size, format=network.cache_format)
    peak = peak_of_largest_step(config, network, cache, device, max_length=max_length)
    before = device.free_bytes()
    # Held until it was measured: without it, its graphs are gone.
    runner = make_runner(config, network, cache, device, max_length=max_length)
    graphs = before - device.free_bytes()
    del runner
    left = int(before * (1 - _SPARE_SHARE)) - peak - graphs
    if left <= 0:
        raise ModelRefused(
            f"of {before} free bytes none are left for the cache: a step of {config.token_budget} tokens "
            f"takes {peak}, the graphs take {graphs}; lower max_num_batched_tokens or max_num_seqs"
        )
    return left


def peak_of_largest_step(
    config: EngineConfig, network: Network, cache: KVCache, device: Device, *, max_length: int
) -> int:
    """Bytes that the largest step needs beside all that is in memory; ModelRefused if there are too few."""
    try:
        return device.peak_bytes(lambda: _run_largest_step(config, network, cache, max_length=max_length))
    except torch.OutOfMemoryError as error:
        raise ModelRefused(
            f"no memory is left for a step of {config.token_budget} tokens; "
            "lower kv_cache_bytes, max_num_batched_tokens or max_num_seqs"
        ) from error


def _run_largest_step(config: EngineConfig, network: Network, cache: KVCache, *, max_length: int) -> None:
    """As many rows as a step may have, all of them padding, with as many draws as there are seats."""
    num_draws = config.max_num_seqs
    batch = build_batch(StepPlan((), num_padding_tokens=config.token_budget), block_size=config.block_size)
    batch = replace(batch, sample_rows=torch.arange(num_draws), max_context_tokens=max_length)
    table = lay_out_draws([Draw(_DEAREST, 0, (0,), 1)] * num_draws, vocab_size=network.vocab_size)
    table = with_tensors(table, (tensor.to(network.device) for tensor in tensors_of(table)))
    with torch.inference_mode():
        choose(network.forward(batch.to(network.device), cache), table)
