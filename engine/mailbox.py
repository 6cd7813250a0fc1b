"""Carries the tensors of a step between host and device, through pinned memory.

    host ──write──> pinned ══copy══> twin ──read──> the step      Inbox
    host <──read── pinned <══copy══ the step's result             Outbox

The copies run by themselves, some time after they were asked for. Nobody may write to memory that
one of them still reads, nor to memory that the step still reads.
"""

from __future__ import annotations

from typing import TypeVar

import torch

from engine.device import Device, Event, Stream
from engine.tensors import packed_bytes, tensors_of, unpack, with_tensors

_Record = TypeVar("_Record")

#: Both grow when a step brings more.
_FIRST_BYTES = 2**16


class Inbox:
    """Takes one record at a time to the device."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._allocate(_FIRST_BYTES)
        self._copied: Event | None = None
        self._used: Event | None = None

    def send(self, record: _Record, stream: Stream) -> tuple[_Record, Event]:
        """The record as it will be on the device, and the event from which on it is."""
        tensors = tensors_of(record)
        size = packed_bytes(tensors)
        # The last record may still be on its way out of this very memory.
        if self._copied is not None:
            self._copied.wait()
        if size > len(self._pinned):
            # Freed memory is for the next taker, whatever still reads it.
            if self._used is not None:
                self._used.wait()
            self._allocate(2 * size)
        for place, tensor in zip(unpack(self._pinned, tensors), tensors, strict=True):
            place.copy_(tensor)
        pinned, twin = self._pinned[:size], self._twin[:size]

        def copy() -> None:
            twin.copy_(pinned, non_blocking=True)

        self._copied = stream.run(copy, after=[] if self._used is None else [self._used])
        return with_tensors(record, unpack(self._twin, tensors)), self._copied

    def keep_until(self, event: Event) -> None:
        """What was sent last is read on the device up to this event."""
        self._used = event

    def _allocate(self, size: int) -> None:
        self._pinned = self._device.pinned_bytes(size)
        self._twin = torch.empty(size, dtype=torch.uint8, device=self._device.torch_device)


class Outbox:
    """Brings one record at a time to the host, where it must be read before the next one is sent."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._pinned = device.pinned_bytes(_FIRST_BYTES)

    def fetch(self, record: _Record) -> _Record:
        """The record as it will be on the host when the stream gets to this; to be called as its work."""
        tensors = tensors_of(record)
        size = packed_bytes(tensors)
        if size > len(self._pinned):
            self._pinned = self._device.pinned_bytes(2 * size)
        places = unpack(self._pinned, tensors)
        for place, tensor in zip(places, tensors, strict=True):
            place.copy_(tensor, non_blocking=True)
        return with_tensors(record, places)
