"""Computes steps: lays out the batch, runs the network, draws the next tokens."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

import torch

from engine.cache import KVCache
from engine.network import Network
from engine.plan import Span, StepPlan
from engine.sampler import Drawn, choose
from engine.sequence import Sequence
from engine.step_inputs import lay_out_step
from engine.step_seconds import StepSeconds

_NOTHING = StepPlan(())


@dataclass(frozen=True, slots=True)
class Sampled:
    """What was drawn as the next token of one sequence."""

    sequence: Sequence
    drawn: Drawn


@dataclass(frozen=True, slots=True)
class DoneStep:
    """A step that is done, with one result per span that samples, but none for those that `failed`."""

    plan: StepPlan
    sampled: list[Sampled]
    failed: tuple[Span, ...] = ()


class Runner(Protocol):
    """A network with its cache, which computes plans in their order."""

    network: Network
    seconds: StepSeconds

    @property
    def has_steps_under_way(self) -> bool:
        """Whether a step was taken on that is not done yet."""

    def run(self, plan: StepPlan) -> list[DoneStep]:
        """Take a plan on, and say which steps are done by now, the oldest first.

        Moves blocks, then fills the cache with the plan's tokens. With an empty plan the step under way
        is waited for. After an error only an empty plan may follow: what was under way before it is
        still to be had.
        """


class SynchronousRunner:
    """Computes each plan at once, on the CPU."""

    has_steps_under_way = False

    def __init__(self, network: Network, cache: KVCache) -> None:
        self.network = network
        self.seconds = StepSeconds()
        self._cache = cache

    def run(self, plan: StepPlan) -> list[DoneStep]:
        if plan.is_empty:
            return []
        # Entered here, since the mode belongs to the thread that computes.
        with torch.inference_mode():
            self._cache.to_host(plan.swap_outs)
            self._cache.from_host(plan.swap_ins)
            return [DoneStep(plan, self._compute(plan))]

    def _compute(self, plan: StepPlan) -> list[Sampled]:
        inputs = lay_out_step(plan, block_size=self._cache.block_size, vocab_size=self.network.vocab_size)
        if not plan.num_tokens:
            return []
        started = time.perf_counter()
        logits = self.network.forward(inputs.batch, self._cache)
        computed = time.perf_counter()
        self.seconds.forward += computed - started
        if inputs.table is None:
            return []
        drawn = choose(logits, inputs.table).read()
        self.seconds.drawing += time.perf_counter() - computed
        spans = inputs.batch.sampling_spans
        return [Sampled(span.sequence, each) for span, each in zip(spans, drawn, strict=True)]


class WaitingRunner:
    """Waits for each step of another runner before it takes the next one on."""

    has_steps_under_way = False

    def __init__(self, runner: Runner) -> None:
        self.network = runner.network
        self.seconds = runner.seconds
        self._runner = runner

    def run(self, plan: StepPlan) -> list[DoneStep]:
        return [] if plan.is_empty else [*self._runner.run(plan), *self._runner.run(_NOTHING)]
