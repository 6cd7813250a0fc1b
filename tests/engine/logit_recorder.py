"""Keeps the logits of every row that an engine samples."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import cast

import torch

from engine.batch import Batch
from engine.cache import KVCache
from engine.engine import TorchEngine
from engine.network import Network
from engine.protocol import EngineRequest


class LogitRecorder:
    """Stands before a network and notes what it gives, by request id."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self.vocab_size = network.vocab_size
        self.logits: dict[str, list[torch.Tensor]] = defaultdict(list)

    def forward(self, batch: Batch, cache: KVCache) -> torch.Tensor:
        logits = self._network.forward(batch, cache)
        for span, row in zip(batch.sampling_spans, logits, strict=True):
            self.logits[span.sequence.request.id].append(row.clone())
        return logits


def record_logits(engine: TorchEngine, requests: Iterable[EngineRequest]) -> dict[str, torch.Tensor]:
    """Run the requests together; the logits [tokens, vocabulary] that each one was sampled from."""
    network = engine._runner.network
    recorder = LogitRecorder(network)
    engine._runner.network = cast(Network, recorder)
    try:
        for request in requests:
            engine.add(request)
        while engine.has_work():
            engine.step()
    finally:
        engine._runner.network = network
    return {id: torch.stack(rows) for id, rows in recorder.logits.items()}
