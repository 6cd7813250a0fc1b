"""What the overlapped runner asks of a device: streams, events, pinned memory, recorded work.

Work is handed over as a function that computes on the device's tensors. A GPU runs the function at
once, and thereby only queues what it computes; so it must not read what the device computes, nor
anything that the host changes later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import torch

Work = Callable[[], None]


class Event(Protocol):
    """A point in a stream."""

    def wait(self) -> None:
        """Hold the host until all work before this point is done."""


class Recording(Protocol):
    """Work that was recorded once, and can be done again on the same memory."""

    def replay(self) -> None:
        """Do it again; to be called as work of the stream that it was recorded on."""


class Stream(Protocol):
    """Work that a device does in order, beside its other streams."""

    def run(self, work: Work, *, after: Iterable[Event] = ()) -> Event:
        """Add work that begins when these events have come to pass; returns its end."""

    def record(self, work: Work) -> Recording:
        """Record work on memory that stays where it is.

        What it needs meanwhile, the recordings of a stream share: what is to be left over when it
        ends must be written to memory that was there before.
        """


class Device(Protocol):
    """A place to compute."""

    @property
    def torch_device(self) -> torch.device:
        """Where its tensors lie."""

    def stream(self) -> Stream:
        """A new stream."""

    def pinned_bytes(self, size: int) -> torch.Tensor:
        """Host memory that streams copy to and from by themselves, uint8 [size]."""

    def free_bytes(self) -> int:
        """Memory that nobody uses, once all work is done and what is only kept for reuse is given back."""

    def peak_bytes(self, work: Work) -> int:
        """The most memory that this work, done now, needs beyond what is in use before."""
