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
from collections.abc import Sequence as Several
from dataclasses import dataclass

import torch

from engine.device import Device, Event
from engine.lane import Lane, Part, TokenTables
from engine.network import Network
from engine.plan import StepPlan
from engine.runner import DoneStep
from engine.sequence import Sequence
from engine.step_seconds import StepSeconds


@dataclass(frozen=True, slots=True)
class _Flight:
    """A step under way, in a part per lane; where its tokens will be, and when all of it is computed."""

    plan: StepPlan
    parts: list[Part]
    tokens: torch.Tensor
    places: dict[Sequence, int]
    computed: list[Event]


class OverlappedRunner:
    """Has one step under way while the next one is prepared.

    With two lanes each step is computed in halves, so that one's attention can run beside the
    other's matrix products.
    """

    def __init__(self, network: Network, device: Device, lanes: Several[Lane], *, max_num_seqs: int) -> None:
        self.network = network
        self.seconds = StepSeconds()
        self._lanes = lanes
        self._under_way: _Flight | None = None
        # Two, since one lane may write its tokens while the other still reads those of the step before.
        self._tables = [
            torch.zeros(max_num_seqs, dtype=torch.long, device=device.torch_device) for _ in range(2)
        ]

    @property
    def has_steps_under_way(self) -> bool:
        return self._under_way is not None

    def run(self, plan: StepPlan) -> list[DoneStep]:
        before = self._under_way
        # Entered here, since the mode belongs to the thread that computes.
        with torch.inference_mode():
            self._under_way = None if plan.is_empty else self._launch(plan, before)
            return [] if before is None else [self._take_in(before)]

    def _launch(self, plan: StepPlan, before: _Flight | None) -> _Flight:
        last, now = self._tables
        if before is not None and before.tokens is now:
            last, now = now, last
        flight = _Flight(plan, [], now, {}, [])
        after = [] if before is None else before.computed
        if plan.swap_outs or plan.swap_ins:
            after = [self._lanes[0].move(plan, after=after)]
        for lane, some in zip(self._lanes, _share_out(plan, len(self._lanes)), strict=True):
            if some.num_tokens:
                first = len(flight.places)
                places = {} if before is None else before.places
                part = lane.launch(some, TokenTables(last, now[first:]), places, after=after)
                flight.parts.append(part)
                flight.places.update({each: first + index for index, each in enumerate(part.sequences)})
        flight.computed.extend([part.computed for part in flight.parts] or after)
        return flight

    def _take_in(self, flight: _Flight) -> DoneStep:
        started = time.perf_counter()
        for event in flight.computed:
            event.wait()
        sampled = [each for part in flight.parts for each in part.take_in()]
        self.seconds.forward += time.perf_counter() - started
        return DoneStep(flight.plan, sampled)


def _share_out(plan: StepPlan, num_parts: int) -> list[StepPlan]:
    """The plan's spans dealt out in turn, so that every part gets its share of decodes and of prompts."""
    return [
        StepPlan(plan.spans[part::num_parts], num_padding_tokens=0 if part else plan.num_padding_tokens)
        for part in range(num_parts)
    ]
