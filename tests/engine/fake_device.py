"""A device that does its work late, and its streams out of phase, on a CPU.

Nothing runs when it is handed over. Whenever the host waits, and now and then besides, some stream
that can go on does its next piece; which one is left to chance. So whatever relies on more order than
was asked for goes wrong here, sooner or later.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import cast

import torch

from engine.device import Event, Work

#: What a recording, and what the largest step costs.
RECORDING_BYTES = 10_000
STEP_BYTES = 200_000


@dataclass(eq=False)
class FakeEvent:
    """Comes to pass when the work before it has run."""

    device: FakeDevice
    has_come: bool = False

    def wait(self) -> None:
        while not self.has_come:
            self.device.advance()


@dataclass
class FakeWork:
    do: Work
    after: list[FakeEvent]
    end: FakeEvent


@dataclass
class FakeStream:
    """Keeps its work in order, and does none of it by itself."""

    device: FakeDevice
    works: deque[FakeWork] = field(default_factory=deque)

    def record(self, work: Work) -> FakeRecording:
        work()
        self.device.num_recordings += 1
        return FakeRecording(work)

    def run(self, work: Work, *, after: Iterable[Event] = ()) -> Event:
        end = FakeEvent(self.device)
        self.works.append(FakeWork(work, [cast(FakeEvent, event) for event in after], end))
        self.device.drift()
        return end

    @property
    def can_go_on(self) -> bool:
        return bool(self.works) and all(event.has_come for event in self.works[0].after)


@dataclass
class FakeRecording:
    """Does the recorded work on whatever its memory holds by then."""

    replay: Work


class FakeDevice:
    """Streams on a CPU, moved along by `chance`.

    With `eager` the work runs as soon as it may: a device that is never late.
    """

    torch_device = torch.device("cpu")

    def __init__(self, chance: random.Random, *, eager: bool = False, memory_bytes: int = 2**22) -> None:
        self._chance = chance
        self._eager = eager
        self._streams: list[FakeStream] = []
        self.num_recordings = 0
        self.memory_bytes = memory_bytes

    def stream(self) -> FakeStream:
        self._streams.append(FakeStream(self))
        return self._streams[-1]

    def pinned_bytes(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8)

    def free_bytes(self) -> int:
        """Every recording costs the same."""
        return self.memory_bytes - self.num_recordings * RECORDING_BYTES

    def peak_bytes(self, work: Work) -> int:
        work()
        return STEP_BYTES

    def advance(self) -> None:
        """Do one piece of work of some stream."""
        ready = [stream for stream in self._streams if stream.can_go_on]
        if not ready:
            raise AssertionError("the host waits for what nobody does")
        work = self._chance.choice(ready).works.popleft()
        with torch.inference_mode():
            work.do()
        work.end.has_come = True

    def drift(self) -> None:
        """Do some of the work that can be done, or none."""
        while any(stream.can_go_on for stream in self._streams):
            if not self._eager and self._chance.random() < 0.8:
                return
            self.advance()


class Standstill(FakeDevice):
    """Does nothing before it is waited for."""

    def drift(self) -> None:
        pass
