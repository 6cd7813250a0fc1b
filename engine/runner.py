"""Computes one step: lays out the batch, runs the network, draws the next tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.batch import build_batch
from engine.cache import KVCache
from engine.model import Network
from engine.sampler import Draw, sample
from engine.scheduler import StepPlan
from engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Sampled:
    """The next token of one sequence; None if its logits were not finite."""

    sequence: Sequence
    token: int | None


class Runner:
    """A network with its cache."""

    def __init__(self, network: Network, cache: KVCache, *, block_size: int) -> None:
        self.network = network
        self._cache = cache
        self._block_size = block_size

    def run(self, plan: StepPlan) -> list[Sampled]:
        """Fill the cache with the plan's tokens; one result per sequence that came to its end."""
        batch = build_batch(plan, block_size=self._block_size)
        # Entered here, since the mode belongs to the thread that computes.
        with torch.inference_mode():
            logits = self.network.forward(batch, self._cache)
            sequences = [span.sequence for span in batch.sampling_spans]
            if not sequences:
                return []
            draws = [Draw(s.request.sampling, position=s.num_completion_tokens) for s in sequences]
            tokens = sample(logits, draws)
        return [Sampled(*pair) for pair in zip(sequences, tokens, strict=True)]
