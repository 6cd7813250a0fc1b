"""An engine without a network: its answers are scripted, so that a test knows each of them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from enum import Enum, auto

from bench.blank_figures import blank_figures
from engine.figures import EngineFigures
from engine.protocol import (
    DeviceLost,
    EngineLimits,
    EngineLost,
    EngineOutput,
    EngineRequest,
    FinishReason,
    RequestRejected,
    Room,
)


class Mark(Enum):
    """What is special about a request."""

    #: `add` refuses it.
    REJECT = auto()
    #: Its first step ends it with an error of its own.
    ERROR = auto()
    #: Each of its steps blocks until `FakeEngine.go` is set.
    SLOW = auto()
    #: A step with it loses the engine.
    LOST = auto()
    #: A step with it loses the device.
    DEVICE_LOST = auto()
    #: A step with it ends with an error that the engine does not know.
    BUG = auto()
    #: `add` ends with an error that the engine does not know.
    UNFIT = auto()
    #: It runs, and its outputs never come.
    SILENT = auto()


class FakeEngine:
    """Gives each request with a seat one token a step, up to its `max_tokens`; the text repeats its id.

    Seats go to the most urgent, and of several to whoever came first.
    """

    def __init__(self, *, seats: int = 4, marks: Mapping[str, Mark] | None = None) -> None:
        self.go = threading.Event()
        self.num_steps = 0
        #: The step at which each request was taken in, and at which it ended.
        self.added_at: dict[str, int] = {}
        self.ended_at: dict[str, int] = {}
        self._marks = marks or {}
        self._running: dict[str, tuple[EngineRequest, int]] = {}
        self._aborted: set[str] = set()
        self._limits = EngineLimits(max_model_len=1000, max_num_seqs=seats, num_cache_tokens=1000 * seats)

    @property
    def limits(self) -> EngineLimits:
        return self._limits

    @property
    def device(self) -> str:
        return "cpu"

    def add(self, request: EngineRequest) -> None:
        if request.id in self._running:
            raise RequestRejected("duplicate_id", f"{request.id} is running already")
        if self._marks.get(request.id) is Mark.REJECT:
            raise RequestRejected("context_length_exceeded", "the script refuses this request")
        if self._marks.get(request.id) is Mark.UNFIT:
            raise LookupError("the script has a fault")
        self._running[request.id] = (request, 0)
        self.added_at[request.id] = self.num_steps

    def lose_at_next_step(self) -> None:
        """Also a step that is waiting for `go` ends so."""
        self._marks = {**self._marks, **dict.fromkeys(self._running, Mark.LOST)}
        self.go.set()

    def abort(self, id: str) -> None:
        self._aborted.add(id)

    def step(self) -> list[EngineOutput]:
        marks = {self._marks.get(id) for id in self._running}
        if Mark.SLOW in marks and not self.go.wait(30):
            raise TimeoutError("nobody let the slow request go")
        marks = {self._marks.get(id) for id in self._running}
        if Mark.LOST in marks:
            raise EngineLost("the script loses the engine")
        if Mark.DEVICE_LOST in marks:
            raise DeviceLost("the script loses the device")
        if Mark.BUG in marks:
            raise LookupError("the script has a fault")
        self.num_steps += 1
        outputs = [self._advance(request, done + 1) for request, done in self._with_a_seat()]
        for output in outputs:
            if output.finish_reason is not None:
                del self._running[output.id]
                self.ended_at[output.id] = self.num_steps
        self._aborted.clear()
        return [output for output in outputs if self._marks.get(output.id) is not Mark.SILENT]

    def room(self, priority: int = 0) -> Room:
        ahead = [request for request, _ in self._running.values() if request.priority <= priority]
        booked = sum(len(request.token_ids) + request.max_tokens for request in ahead)
        return Room(self._limits.max_num_seqs - len(ahead), self._limits.num_cache_tokens - booked)

    def ids(self) -> frozenset[str]:
        return frozenset(self._running)

    def has_work(self) -> bool:
        return bool(self._running)

    def figures(self) -> EngineFigures:
        return blank_figures(len(self._running), self._limits.max_num_seqs, num_steps=self.num_steps)

    def _with_a_seat(self) -> list[tuple[EngineRequest, int]]:
        """Those that get on in this step, or end since they were aborted."""
        by_urgency = sorted(self._running.values(), key=lambda each: each[0].priority)
        seats = self._limits.max_num_seqs
        return by_urgency[:seats] + [each for each in by_urgency[seats:] if each[0].id in self._aborted]

    def _advance(self, request: EngineRequest, position: int) -> EngineOutput:
        if request.id in self._aborted:
            return EngineOutput(request.id, finish_reason=FinishReason.CANCELLED)
        if self._marks.get(request.id) is Mark.ERROR:
            return EngineOutput(request.id, finish_reason=FinishReason.ERROR, error="scripted error")
        self._running[request.id] = (request, position)
        reason = FinishReason.LENGTH if position == request.max_tokens else None
        return EngineOutput(request.id, (position,), f"{request.id} ", finish_reason=reason)
