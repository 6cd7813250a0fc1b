"""Logits of given tokens, computed as the engine computes them: in chunks, then one at a time."""

from __future__ import annotations

from collections.abc import Sequence as Listing

import torch

from bench.cuda.forced import Forced
from bench.cuda.own import StepRunner
from engine.network import Network
from engine.plan import Span
from engine.protocol import EngineRequest
from engine.sequence import Sequence


def forced_logits(network: Network, lines: Listing[Forced], *, block_size: int) -> torch.Tensor:
    """Logits [lines, following + 1, vocabulary] of the prompts' last and all following tokens.

    All lines must have as many following tokens. They run together on one cache, every prompt
    in two chunks and every second line a step later, so that chunks and decodes meet in a step.
    """
    lengths = [len(line.token_ids) + 1 for line in lines]
    runner = StepRunner(network, lengths=lengths, block_size=block_size)
    walks = [_Walk(line, index, runner) for index, line in enumerate(lines)]
    rows: list[list[torch.Tensor]] = [[] for _ in lines]
    step = 0
    while any(walk.pieces for walk in walks):
        moving = [walk for walk in walks if walk.pieces and step >= walk.index % 2]
        spans = sorted((walk.next_span() for walk in moving), key=lambda span: not span.is_decode)
        sampling, logits = runner.run(tuple(spans))
        for sequence, row in zip(sampling, logits, strict=True):
            rows[int(sequence.request.id)].append(row)
        step += 1
    return torch.stack([torch.stack(each) for each in rows])


class _Walk:
    """One line on its way through the network: the pieces that are still to come."""

    def __init__(self, line: Forced, index: int, runner: StepRunner) -> None:
        self.index = index
        half, whole = len(line.prompt) // 2, len(line.prompt)
        decodes = [(position, 1) for position in range(whole, len(line.token_ids))]
        self.pieces = [(0, half), (half, whole - half), *decodes]
        self._following = iter(line.following)
        request = EngineRequest(id=str(index), token_ids=line.prompt, max_tokens=len(line.following) + 1)
        self._sequence = Sequence(request, arrival=index)
        runner.book(self._sequence)

    def next_span(self) -> Span:
        start, count = self.pieces.pop(0)
        if start >= self._sequence.num_prompt_tokens:
            self._sequence.append(next(self._following))
        return Span(self._sequence, start, count)
