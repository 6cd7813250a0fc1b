"""An NVIDIA GPU as a device to compute on, by `torch.cuda`."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import torch

from engine.device import Event, Recording, Stream, Work

#: Times that work is done before it is recorded: kernels are compiled and chosen, workspaces claimed.
_NUM_WARM_UPS = 2


@dataclass(frozen=True, slots=True)
class CudaEvent:
    """A point in a CUDA stream."""

    event: torch.cuda.Event

    def wait(self) -> None:
        self.event.synchronize()


class CudaStream:
    """A CUDA stream, with one pool of memory for all that is recorded on it."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        # What was set up before is ready before anything here runs.
        self._stream.wait_stream(torch.cuda.current_stream(device))
        self._pool = torch.cuda.graph_pool_handle()

    def run(self, work: Work, *, after: Iterable[Event] = ()) -> Event:
        for event in after:
            self._stream.wait_event(cast(CudaEvent, event).event)
        with torch.cuda.stream(self._stream):
            work()
            end = torch.cuda.Event()  # type: ignore[no-untyped-call]
            end.record(self._stream)
        return CudaEvent(end)

    def record(self, work: Work) -> Recording:
        # What set the memory up was queued on another stream.
        torch.cuda.synchronize(self._stream.device)
        with torch.cuda.stream(self._stream):
            for _ in range(_NUM_WARM_UPS):
                work()
        graph = torch.cuda.CUDAGraph()
        # Other threads of the process may use the device meanwhile, as long as this one does not.
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            work()
        return graph


@dataclass(frozen=True, slots=True)
class CudaDevice:
    """One GPU."""

    torch_device: torch.device

    def stream(self) -> Stream:
        return CudaStream(self.torch_device)

    def pinned_bytes(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)

    def free_bytes(self) -> int:
        gc.collect()
        torch.cuda.synchronize(self.torch_device)
        torch.cuda.empty_cache()
        free, _ = torch.cuda.mem_get_info(self.torch_device)
        return free

    def peak_bytes(self, work: Work) -> int:
        torch.cuda.synchronize(self.torch_device)
        torch.cuda.reset_peak_memory_stats(self.torch_device)
        before = torch.cuda.memory_allocated(self.torch_device)
        work()
        torch.cuda.synchronize(self.torch_device)
        peak = torch.cuda.max_memory_allocated(self.torch_device) - before
        # What is kept for reuse here could not be used by another stream.
        torch.cuda.empty_cache()
        return peak
