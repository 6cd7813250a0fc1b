"""What the overlapped runner asks of a device: streams, events, pinned memory, recorded work.

Work is handed over as a function that computes on the device's tensors. A GPU runs the function at
once, and thereby only queues what it computes; so it must not read what the device computes, nor
anything that the host changes later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import torch


class Event(Protocol):
    """A point in a stream."""

    def wait(self) -> None:
        """Hold the host until all work before this point is done."""


class Stream(Protocol):
    """Work that a device does in order, beside its other streams."""

    def run(self, work: Callable[[], None], *, after: Iterable[Event] = ()) -> Event:
        """Add work that begins when these events have come to pass; returns its end."""


class Recording(Protocol):
    """Work that was recorded once, and can be done again on the same memory."""

    output: torch.Tensor

    def replay(self) -> None:
        """Do it again, as work of a stream; the result lies in `output`."""


class Device(Protocol):
    """A place to compute."""

    @property
    def torch_device(self) -> torch.device:
        """Where its tensors lie."""

    def stream(self) -> Stream:
        """A new stream."""

    def pinned_bytes(self, size: int) -> torch.Tensor:
        """Host memory that streams copy to and from by themselves, uint8 [size]."""

    def record(self, work: Callable[[], torch.Tensor]) -> Recording:
        """Record work on memory that stays where it is.

        All recordings share their working memory: one replay must be done, and its output read,
        before another of the same device begins.
        """
