"""Computes one step: lays out the batch, runs the network, draws the next tokens."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from engine.batch import build_batch
from engine.cache import KVCache
from engine.draw import Draw
from engine.network import Network
from engine.plan import Span, StepPlan
from engine.sampler import Drawn, sample
from engine.sequence import Sequence
from engine.step_seconds import StepSeconds


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


class Runner:
    """A network with its cache."""

    def __init__(self, network: Network, cache: KVCache, *, block_size: int) -> None:
        self.network = network
        self.seconds = StepSeconds()
        self._cache = cache
        self._block_size = block_size

    def run(self, plan: StepPlan) -> list[DoneStep]:
        """Move blocks, fill the cache with the plan's tokens, draw; an empty plan is nothing to do."""
        return [] if plan.is_empty else [DoneStep(plan, self._compute(plan))]

    def _compute(self, plan: StepPlan) -> list[Sampled]:
        self._cache.to_host(plan.swap_outs)
        self._cache.from_host(plan.swap_ins)
        batch = build_batch(plan, block_size=self._block_size)
        if not batch.input_ids.numel():
            return []
        # Entered here, since the mode belongs to the thread that computes.
        with torch.inference_mode():
            started = time.perf_counter()
            logits = self.network.forward(batch, self._cache)
            computed = time.perf_counter()
            self.seconds.forward += computed - started
            sequences = [span.sequence for span in batch.sampling_spans]
            if not sequences:
                return []
            drawn = sample(logits, [_draw_of(sequence) for sequence in sequences])
            self.seconds.drawing += time.perf_counter() - computed
        return [Sampled(*pair) for pair in zip(sequences, drawn, strict=True)]


def _draw_of(sequence: Sequence) -> Draw:
    return Draw(
        sequence.sampling,
        position=sequence.num_completion_tokens,
        history=sequence.token_ids,
        num_prompt_tokens=sequence.num_prompt_tokens,
    )
