"""Hands workloads to an engine and collects what it says."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from bench.cuda.stopwatch import settled_seconds
from bench.workload import Workload
from engine.engine import TorchEngine
from engine.protocol import EngineOutput, EngineRequest, TokenLogprobs
from engine.sampling import SamplingParams


@dataclass(frozen=True, slots=True)
class Answers:
    """Tokens of each line, with logprobs where these were asked for, and how long all of it took."""

    seconds: float
    token_ids: list[list[int]]
    logprobs: list[list[TokenLogprobs]]


def ask(
    engine: TorchEngine, workload: Workload, *, device: torch.device, num_logprobs: int | None = None
) -> Answers:
    """Answer all lines greedily; RuntimeError if one fails or falls short."""
    sampling = greedy(num_logprobs)
    token_ids: list[list[int]] = [[] for _ in workload.lines]
    logprobs: list[list[TokenLogprobs]] = [[] for _ in workload.lines]
    started = settled_seconds(device)
    for index, line in enumerate(workload.lines):
        engine.add(EngineRequest(str(index), line.token_ids, line.max_tokens, sampling))
    while engine.has_work():
        for output in engine.step():
            check(output)
            token_ids[int(output.id)] += output.token_ids
            logprobs[int(output.id)] += output.logprobs or ()
    seconds = settled_seconds(device) - started
    for line, tokens in zip(workload.lines, token_ids, strict=True):
        if len(tokens) != line.max_tokens:
            raise RuntimeError(f"a line of {line.max_tokens} tokens got {len(tokens)}")
    return Answers(seconds, token_ids, logprobs)


def greedy(num_logprobs: int | None = None) -> SamplingParams:
    """The likeliest token always, and no token ends a text."""
    return SamplingParams(temperature=0, ignore_eos=True, num_logprobs=num_logprobs)


def check(output: EngineOutput) -> None:
    """Raise RuntimeError if this is about a request that failed."""
    if output.error is not None:
        raise RuntimeError(f"request {output.id} failed: {output.error}")
