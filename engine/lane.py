"""Runs one part of a step on a device: its rows go up, are computed, and what they draw comes down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import cycle

import torch

from engine.cache import KVCache
from engine.decode_graphs import DecodeGraphs
from engine.device import Device, Event, Stream
from engine.mailbox import Inbox, Outbox
from engine.network import Network
from engine.plan import StepPlan
from engine.runner import Sampled
from engine.sampler import Choice, choose
from engine.sequence import Sequence
from engine.step_inputs import StepInputs, lay_out_step


@dataclass(frozen=True, slots=True)
class TokenTables:
    """The tokens of two steps, on the device: those drawn before, and where this step's are written."""

    before: torch.Tensor
    now: torch.Tensor


class Part:
    """A part of a step that is under way: who draws in it, what they drew, and when it will be there."""

    def __init__(self, sequences: list[Sequence], computed: Event, end: Event, result: _Result) -> None:
        self.sequences = sequences
        self.computed = computed
        self._end = end
        self._result = result

    def take_in(self) -> list[Sampled]:
        """What was drawn; the host waits for it."""
        self._end.wait()
        drawn = [] if self._result.here is None else self._result.here.read()
        return [Sampled(*pair) for pair in zip(self.sequences, drawn, strict=True)]


@dataclass(slots=True)
class _Result:
    """What was drawn, first on the device and then here; None until then, and where nobody draws."""

    there: Choice | None = None
    here: Choice | None = None


class Lane:
    """A stream to compute on, and the ways in and out of it, for every other step one.

    With `graphs` decode steps are replayed.
    """

    def __init__(
        self, network: Network, cache: KVCache, device: Device, compute: Stream, graphs: DecodeGraphs | None
    ) -> None:
        self._network = network
        self._cache = cache
        self._compute = compute
        self._graphs = graphs
        self._inputs, self._outputs = device.stream(), device.stream()
        self._boxes = cycle([(Inbox(device), Outbox(device)) for _ in range(2)])

    def move(self, plan: StepPlan, *, after: Iterable[Event]) -> Event:
        """Copy the plan's blocks out to host memory and back."""

        def work() -> None:
            self._cache.to_host(plan.swap_outs)
            self._cache.from_host(plan.swap_ins)

        return self._compute.run(work, after=after)

    def launch(
        self, plan: StepPlan, tokens: TokenTables, places: Mapping[Sequence, int], *, after: Iterable[Event]
    ) -> Part:
        """Begin with the plan's spans once these events have come to pass.

        `places` says where in `tokens.before` those stand that are still being drawn.
        """
        inbox, outbox = next(self._boxes)
        filled_up = None if self._graphs is None else self._graphs.filled_up(plan)
        inputs = lay_out_step(
            filled_up or plan,
            block_size=self._cache.block_size,
            vocab_size=self._network.vocab_size,
            places=places,
        )
        inputs, sent = inbox.send(inputs, self._inputs)
        result = _Result()

        def compute() -> None:
            result.there = self._step(inputs, tokens, is_recorded=filled_up is not None)

        def fetch() -> None:
            if result.there is not None:
                result.here = outbox.fetch(result.there)

        try:
            computed = self._compute.run(compute, after=[sent, *after])
        except Exception:
            # What was queued of it reads the same memory as the next try.
            self._compute.run(lambda: None).wait()
            raise
        inbox.keep_until(computed)
        end = self._outputs.run(fetch, after=[computed])
        return Part([span.sequence for span in inputs.batch.sampling_spans], computed, end, result)

    def _step(self, inputs: StepInputs, tokens: TokenTables, *, is_recorded: bool) -> Choice | None:
        batch = inputs.batch
        batch.input_ids[batch.awaited_rows] = tokens.before[batch.awaited]
        if is_recorded and self._graphs is not None:
            logits = self._graphs.replay(batch)
        else:
            logits = self._network.forward(batch, self._cache)
        if inputs.table is None:
            return None
        choice = choose(logits, inputs.table, tokens.before)
        tokens.now[: len(choice.tokens)] = choice.tokens
        return choice
