"""Which runner computes an engine's steps."""

from __future__ import annotations

import torch

from engine.cache import KVCache
from engine.config import EngineConfig
from engine.cuda_device import CudaDevice
from engine.decode_graphs import DecodeGraphs
from engine.device import Device
from engine.lane import Lane
from engine.network import Network
from engine.overlapped_runner import OverlappedRunner
from engine.runner import Runner, SynchronousRunner, WaitingRunner


def device_of(network: Network) -> Device | None:
    """What a network's steps are queued on; None where they are computed at once."""
    return CudaDevice(network.device) if network.device.type == "cuda" else None


def make_runner(
    config: EngineConfig, network: Network, cache: KVCache, device: Device | None, *, max_length: int
) -> Runner:
    """A runner for sequences of up to `max_length` tokens; graphs are recorded here."""
    if device is None:
        return SynchronousRunner(network, cache)
    num_lanes = 2 if config.half_batches else 1
    max_rows = -(-config.max_num_seqs // num_lanes)
    lanes = []
    with torch.inference_mode():
        for _ in range(num_lanes):
            compute = device.stream()
            graphs = None
            if config.cuda_graphs:
                graphs = DecodeGraphs(network, cache, compute, max_rows=max_rows, max_length=max_length)
            lanes.append(Lane(network, cache, device, compute, graphs))
    runner = OverlappedRunner(network, device, lanes, max_num_seqs=config.max_num_seqs)
    return runner if config.overlap else WaitingRunner(runner)
