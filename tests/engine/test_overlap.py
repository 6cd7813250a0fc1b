"""Steps that overlap say what steps one after the other say, token for token."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.config import EngineConfig
from engine.engine import TorchEngine, assemble_engine
from engine.network import Network
from engine.protocol import EngineRequest, FinishReason
from engine.sampling import SamplingParams
from engine.tokenizer import Tokenizer
from tests.engine.completion import (
    Completion,
    build_tiny_engine,
    greedy_request,
    random_prompt,
    run_together,
)
from tests.engine.fake_device import FakeDevice

Build = Callable[..., TorchEngine]


@pytest.fixture(scope="module")
def network(tiny_folder: Callable[[str], Path]) -> Network:
    return build_tiny_engine(tiny_folder("llama"))._runner.network


@pytest.fixture
def build(llama_folder: Path, network: Network) -> Build:
    tokenizer = Tokenizer.load(llama_folder)

    def build(device: FakeDevice | None = None, **settings: Any) -> TorchEngine:
        settings.setdefault("kv_cache_bytes", 2**22)
        config = EngineConfig(model="tiny", cache_dir=llama_folder / "unused", **settings)
        return assemble_engine(config, network=network, tokenizer=tokenizer, device=device)

    return build


def late(seed: int) -> FakeDevice:
    return FakeDevice(random.Random(seed))


def varied_requests(num: int, *, seed: int) -> list[EngineRequest]:
    """Requests that draw in every way, end in every way, and share beginnings."""
    draw = random.Random(seed)
    common = random_prompt(70, seed=seed)
    ways: list[dict[str, Any]] = [
        {"temperature": 0},
        {"temperature": 0, "repetition_penalty": 1.4},
        {"temperature": 1.3, "frequency_penalty": 0.8},
        {"presence_penalty": 1.5, "min_tokens": 5},
        {"top_p": 0.8, "num_logprobs": 3},
        {"top_k": 7, "min_p": 0.02, "logit_bias": ((9, 4.0), (1, -3.0))},
        {"num_logprobs": 0, "stop_token_ids": tuple(range(40, 90))},
    ]
    requests = []
    for index in range(num):
        own = random_prompt(draw.randint(1, 200), seed=seed + index)
        requests.append(
            EngineRequest(
                id=str(index),
                token_ids=common[: draw.choice([0, 0, 33, 70])] + own,
                max_tokens=draw.randint(1, 25),
                sampling=SamplingParams(seed=draw.getrandbits(40), **draw.choice(ways)),
                stop=draw.choice([(), (), ("e",), ("the", "q")]),
                n=draw.choice([1, 1, 1, 3]),
            )
        )
    return requests


@pytest.mark.parametrize(
    ("batching", "settings"),
    [
        ("continuous", {}),
        ("continuous", {"cuda_graphs": False}),
        ("continuous", {"half_batches": True}),
        ("continuous", {"half_batches": True, "cuda_graphs": False}),
        ("continuous", {"overlap": False}),
        ("window", {}),
        ("static", {}),
        ("static", {"half_batches": True}),
    ],
)
def test_late_steps_say_what_steps_at_once_say(
    build: Build, batching: str, settings: dict[str, bool]
) -> None:
    requests = varied_requests(14, seed=len(settings))
    expected = run_choices(build(max_num_seqs=5, batching=batching), requests)

    completions = run_choices(build(late(1), max_num_seqs=5, batching=batching, **settings), requests)

    assert completions == expected


def run_choices(engine: TorchEngine, requests: list[EngineRequest]) -> dict[tuple[str, int], Completion]:
    for request in requests:
        engine.add(request)
    completions: dict[tuple[str, int], Completion] = {}
    while engine.has_work():
        for output in engine.step():
            completions.setdefault((output.id, output.choice), Completion()).take(output)
    return completions


def test_next_step_is_on_its_way_before_the_last_is_done(build: Build) -> None:
    """The token of a step comes out one call later, and the call after the last token is not wasted."""
    engine = build(late(0))
    engine.add(greedy_request("a", random_prompt(5, seed=1), 3))

    counts = [[len(output.token_ids) for output in engine.step()] for _ in range(4)]

    assert counts == [[], [1], [1], [1]]
    assert not engine.has_work()


def test_what_was_drawn_for_somebody_who_is_gone_is_nobodys(build: Build) -> None:
    engine = build(late(3))
    engine.add(greedy_request("gone", random_prompt(5, seed=1), 9))
    engine.add(greedy_request("here", random_prompt(6, seed=2), 9))
    engine.step()
    engine.abort("gone")

    first = engine.step()
    rest = [output for _ in range(20) if engine.has_work() for output in engine.step()]

    assert [(each.id, each.finish_reason) for each in first] == [
        ("gone", FinishReason.CANCELLED),
        ("here", None),
    ]
    assert {each.id for each in rest} == {"here"}


def test_repetition_penalty_sees_the_token_still_being_drawn(build: Build) -> None:
    """Under so hard a penalty no token comes twice, unless the newest one is not seen."""
    sampling = SamplingParams(temperature=0, repetition_penalty=1e9)
    request = EngineRequest(id="a", token_ids=[5], max_tokens=60, sampling=sampling)

    completion = run_together(build(late(5)), [request])["a"]

    assert len(completion.token_ids) > 10
    assert len(set(completion.token_ids)) == len(completion.token_ids)
