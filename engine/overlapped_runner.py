"""Computes a step while the host takes in the one before and plans the one after.

    inputs     | n+1 up |           | n+2 up |
    compute    | step n             | step n+1           | step n+2
    outputs                         | n down |           | n+1 down |
    host        lays out n+1 | waits | takes in n, plans and lays out n+2 | waits

A token goes from one step into the next on the device; the host learns of it a step later. So a
sequence may have ended when the next step already computes it: what that step drew for it is nobody's.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import cycle

import torch

from engine.cache import KVCache
from engine.device import Device, Event
from engine.mailbox import Inbox, Outbox
from engine.network import Network
from engine.plan import StepPlan
from engine.runner import DoneStep, Sampled
from engine.sampler import Choice, choose
from engine.sequence import Sequence
from engine.step_inputs import StepInputs, lay_out_step
from engine.step_seconds import StepSeconds


class _Slot:
    """The way in and out of every other step."""

    def __init__(self, device: Device) -> None:
        self.inbox = Inbox(device)
        self.outbox = Outbox(device)


@dataclass(slots=True)
class _Flight:
    """A step under way: who draws in it, and what was drawn, first on the device, then here."""

    plan: StepPlan
    sequences: list[Sequence]
    drawn: Choice | None = None
    read: Choice | None = None
    end: Event | None = None
    places: dict[Sequence, int] = field(init=False)

    def __post_init__(self) -> None:
        self.places = {sequence: place for place, sequence in enumerate(self.sequences)}


class OverlappedRunner:
    """Has one step under way while the next one is prepared."""

    def __init__(
        self, network: Network, cache: KVCache, device: Device, *, block_size: int, max_num_seqs: int
    ) -> None:
        self.network = network
        self.seconds = StepSeconds()
        self._cache = cache
        self._block_size = block_size
        self._inputs, self._compute, self._outputs = (device.stream() for _ in range(3))
        self._slots = cycle([_Slot(device), _Slot(device)])
        self._under_way: _Flight | None = None
        #: The tokens that were drawn last; they stay on the device.
        self._tokens = torch.zeros(max_num_seqs, dtype=torch.long, device=device.torch_device)

    @property
    def has_steps_under_way(self) -> bool:
        return self._under_way is not None

    def run(self, plan: StepPlan) -> list[DoneStep]:
        before, self._under_way = self._under_way, None
        # Entered here, since the mode belongs to the thread that computes.
        with torch.inference_mode():
            if not plan.is_empty:
                self._under_way = self._launch(plan, before.places if before is not None else {})
            return [] if before is None else [self._take_in(before)]

    def _launch(self, plan: StepPlan, places: dict[Sequence, int]) -> _Flight:
        slot = next(self._slots)
        inputs = lay_out_step(
            plan, block_size=self._block_size, vocab_size=self.network.vocab_size, places=places
        )
        flight = _Flight(plan, [span.sequence for span in inputs.batch.sampling_spans])
        inputs, sent = slot.inbox.send(inputs, self._inputs)
        computed = self._compute.run(lambda: self._step(flight, inputs), after=[sent])
        slot.inbox.keep_until(computed)
        flight.end = self._outputs.run(lambda: _fetch(flight, slot.outbox), after=[computed])
        return flight

    def _step(self, flight: _Flight, inputs: StepInputs) -> None:
        """What the compute stream does: move blocks, fill the cache, draw."""
        self._cache.to_host(flight.plan.swap_outs)
        self._cache.from_host(flight.plan.swap_ins)
        batch, table = inputs.batch, inputs.table
        if not batch.input_ids.numel():
            return
        batch.input_ids[batch.awaited_rows] = self._tokens[batch.awaited]
        logits = self.network.forward(batch, self._cache)
        if table is not None:
            flight.drawn = choose(logits, table, self._tokens)
            self._tokens[: len(flight.sequences)] = flight.drawn.tokens

    def _take_in(self, flight: _Flight) -> DoneStep:
        started = time.perf_counter()
        if flight.end is not None:
            flight.end.wait()
        self.seconds.forward += time.perf_counter() - started
        drawn = [] if flight.read is None else flight.read.read()
        return DoneStep(flight.plan, [Sampled(*pair) for pair in zip(flight.sequences, drawn, strict=True)])


def _fetch(flight: _Flight, outbox: Outbox) -> None:
    if flight.drawn is not None:
        flight.read = outbox.fetch(flight.drawn)
