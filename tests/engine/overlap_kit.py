"""Engines whose steps overlap on a fake device, requests of every kind for them, and how they are run."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from engine.block_manager import NULL_BLOCK
from engine.cache import KVCache
from engine.config import EngineConfig
from engine.engine import TorchEngine, assemble_engine
from engine.network import Network
from engine.overlapped_runner import OverlappedRunner
from engine.plan import StepPlan
from engine.protocol import EngineRequest
from engine.runner import DoneStep, WaitingRunner
from engine.sampling import SamplingParams
from engine.step_guard import StepGuard
from engine.tokenizer import Tokenizer
from tests.engine.completion import Completion, random_prompt
from tests.engine.fake_device import FakeDevice

#: Ways to draw: each kind of row of the sampler, and all that looks at what was drawn before.
WAYS: Sequence[Mapping[str, Any]] = (
    {"temperature": 0},
    {"temperature": 0, "repetition_penalty": 1.4},
    {"temperature": 1.3, "frequency_penalty": 0.8},
    {"presence_penalty": 1.5, "min_tokens": 1},
    {"top_p": 0.8, "num_logprobs": 3},
    {"top_k": 7, "min_p": 0.02, "logit_bias": ((9, 4.0), (1, -3.0))},
    {"num_logprobs": 0, "stop_token_ids": tuple(range(40, 90))},
)

Completions = dict[tuple[str, int], Completion]


def late(seed: int) -> FakeDevice:
    return FakeDevice(random.Random(seed))


def make_engine(
    network: Network, tokenizer: Tokenizer, device: FakeDevice | None = None, **settings: Any
) -> TorchEngine:
    settings.setdefault("kv_cache_bytes", 2**20)
    config = EngineConfig(model="toy", cache_dir=Path("unused"), **settings)
    return assemble_engine(config, network=network, tokenizer=tokenizer, device=device)


def varied_requests(num: int, *, seed: int) -> list[EngineRequest]:
    """Requests that draw in every way, end in every way, and share beginnings."""
    draw = random.Random(seed)
    common = random_prompt(70, seed=seed)
    return [
        EngineRequest(
            id=str(index),
            token_ids=common[: draw.choice([0, 0, 33, 70])] + random_prompt(draw.randint(1, 150), seed=index),
            max_tokens=draw.randint(1, 20),
            sampling=SamplingParams(seed=draw.getrandbits(40), **WAYS[index % len(WAYS)]),
            stop=draw.choice([(), (), ("e",), ("the", "q")]),
            n=draw.choice([1, 1, 1, 3]),
        )
        for index in range(num)
    ]


def run_choices(engine: TorchEngine, requests: Sequence[EngineRequest]) -> Completions:
    """Run all requests together, to the end."""
    for request in requests:
        engine.add(request)
    completions: Completions = {}
    while engine.has_work():
        take_step(engine, completions)
    return completions


def take_step(engine: TorchEngine, completions: Completions) -> None:
    for output in engine.step():
        completions.setdefault((output.id, output.choice), Completion()).take(output)


def cache_of(engine: TorchEngine) -> KVCache:
    runner = engine._runner
    if isinstance(runner, WaitingRunner):
        runner = runner._runner
    assert isinstance(runner, OverlappedRunner)
    return runner._lanes[0]._cache


def poison_free_blocks(engine: TorchEngine) -> None:
    """From now on spoil what nobody may read any more, at once, whatever the device still has to do.

    Blocks that are copied out are left: whoever takes them writes to them later.
    """
    runner, blocks = engine._runner, engine._scheduler._blocks
    assert isinstance(runner, OverlappedRunner)

    def run(plan: StepPlan) -> list[DoneStep]:
        plans = [plan] if runner._under_way is None else [plan, runner._under_way.plan]
        leaving = {transfer.block for each in plans for transfer in each.swap_outs}
        free = torch.tensor(sorted({NULL_BLOCK, *blocks._pool._free} - leaving))
        for kept in cache_of(engine).layer(0):
            kept[free] = torch.nan
        return runner.run(plan)

    engine._guard = StepGuard(run)


def check_idle(engine: TorchEngine) -> None:
    """Nothing is held, lost or under way."""
    engine._scheduler._blocks.check_integrity([])
    engine._scheduler._blocks.check_idle()
    blocks = engine.figures().blocks
    assert blocks.num_free_blocks + blocks.num_cached_blocks == blocks.num_blocks
    assert blocks.num_used_blocks == blocks.num_used_host_blocks == 0
    assert not engine._scheduler._blocks.has_steps_under_way
