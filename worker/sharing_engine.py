"""An engine that computes once what several requests of a group ask for alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace

from engine.figures import EngineFigures
from engine.protocol import (
    Engine,
    EngineLimits,
    EngineOutput,
    EngineRequest,
    FinishReason,
    RequestRejected,
    Room,
)
from engine.sampling import GREEDY_BELOW

#: Answers that are kept for those who will ask for the same; lines that are alike come close to each other.
_MOST_KEPT = 256


@dataclass(slots=True)
class _Run:
    """What is computed once: under which id, and all that was said so far."""

    id: str
    key: Hashable
    #: The choices that have not ended.
    open: set[int]
    outputs: list[EngineOutput] = field(default_factory=list)
    num_listeners: int = 0


@dataclass(slots=True)
class _Listener:
    """Somebody who is told what a run says, each at their own pace."""

    request: EngineRequest
    run: _Run
    num_told: int = 0
    is_aborted: bool = False

    def end(self, reason: FinishReason) -> list[EngineOutput]:
        """End it before its run, with what it was told."""
        told = self.run.outputs[: self.num_told]
        ended = {each.choice for each in told if each.finish_reason is not None}
        return [
            EngineOutput(self.request.id, choice=choice, finish_reason=reason)
            for choice in range(self.request.n)
            if choice not in ended
        ]

    def tell(self) -> list[EngineOutput]:
        """What it has not been told yet."""
        new = self.run.outputs[self.num_told :]
        self.num_told += len(new)
        return [replace(each, id=self.request.id) for each in new]


class SharingEngine:
    """Has another engine compute, and lets greedy requests that are alike share what comes out.

    To whoever uses it each request is one of its own: it is told everything from its first token on, under
    its own id, and is cancelled or overdue alone. An error is told to all who listen, and kept for nobody.
    """

    def __init__(self, engine: Engine, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._clock = clock
        self._num_runs = 0
        #: Runs by what was asked for, those under way and those kept; the oldest first.
        self._by_key: dict[Hashable, _Run] = {}
        self._under_way: dict[str, _Run] = {}
        self._listeners: dict[str, _Listener] = {}

    @property
    def limits(self) -> EngineLimits:
        return self._engine.limits

    @property
    def device(self) -> str:
        return self._engine.device

    def add(self, request: EngineRequest) -> None:
        if request.id in self._listeners:
            raise RequestRejected("duplicate_id", f"a request with id {request.id!r} is running already")
        if request.share_group is None or request.sampling.temperature >= GREEDY_BELOW:
            self._engine.add(request)
            return
        key = _key(request)
        run = self._by_key.get(key) or self._begin(request, key)
        run.num_listeners += 1
        self._listeners[request.id] = _Listener(request, run)

    def abort(self, id: str) -> None:
        if id in self._listeners:
            self._listeners[id].is_aborted = True
        else:
            self._engine.abort(id)

    def step(self) -> list[EngineOutput]:
        outputs: list[EngineOutput] = []
        for output in self._engine.step() if self._engine.has_work() else ():
            if output.id in self._under_way:
                self._take(output)
            else:
                outputs.append(output)
        for listener in list(self._listeners.values()):
            outputs += self._advance(listener)
        return outputs

    def room(self, priority: int = 0) -> Room:
        """What the engine has; but there are never more who only listen than there are seats."""
        room = self._engine.room(priority)
        listeners = [each for each in self._listeners.values() if each.request.priority <= priority]
        num_only_listening = len(listeners) - len({each.run.id for each in listeners})
        return room._replace(seats=max(0, min(room.seats, self.limits.max_num_seqs - num_only_listening)))

    def ids(self) -> frozenset[str]:
        return self._engine.ids().difference(self._under_way) | self._listeners.keys()

    def has_work(self) -> bool:
        return bool(self._listeners) or self._engine.has_work()

    def figures(self) -> EngineFigures:
        return self._engine.figures()

    def _begin(self, request: EngineRequest, key: Hashable) -> _Run:
        run = _Run(f"run {self._num_runs} of {request.share_group}", key, set(range(request.n)))
        # Everybody's deadline is their own.
        self._engine.add(replace(request, id=run.id, deadline=None))
        self._num_runs += 1
        self._by_key[key] = self._under_way[run.id] = run
        return run

    def _take(self, output: EngineOutput) -> None:
        run = self._under_way[output.id]
        run.outputs.append(output)
        if output.finish_reason is not None:
            run.open.discard(output.choice)
            if output.finish_reason not in (FinishReason.STOP, FinishReason.LENGTH):
                self._forget(run)
        if not run.open:
            del self._under_way[run.id]
            kept = [each for each in self._by_key.values() if not each.open]
            for each in kept[: max(0, len(kept) - _MOST_KEPT)]:
                self._forget(each)

    def _advance(self, listener: _Listener) -> list[EngineOutput]:
        deadline = listener.request.deadline
        if listener.is_aborted:
            outputs = listener.end(FinishReason.CANCELLED)
        elif deadline is not None and deadline <= self._clock():
            outputs = listener.end(FinishReason.DEADLINE)
        else:
            outputs = listener.tell()
            if listener.run.open:
                return outputs
        self._leave(listener)
        return outputs

    def _leave(self, listener: _Listener) -> None:
        run = listener.run
        del self._listeners[listener.request.id]
        run.num_listeners -= 1
        if run.open and not run.num_listeners:
            # Nobody listens any more; whoever comes now has it computed anew.
            self._engine.abort(run.id)
            self._forget(run)

    def _forget(self, run: _Run) -> None:
        if self._by_key.get(run.key) is run:
            del self._by_key[run.key]


def sharing(build: Callable[[], Engine]) -> Callable[[], Engine]:
    """Build engines that share."""
    return lambda: SharingEngine(build())


def _key(request: EngineRequest) -> Hashable:
    """All that decides what a greedy request is answered, and its priority; the seed draws nothing."""
    sampling = replace(request.sampling, seed=0)
    return replace(request, id="", token_ids=tuple(request.token_ids), sampling=sampling, deadline=None)
