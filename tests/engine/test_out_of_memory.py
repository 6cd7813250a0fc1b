"""A network that runs out of memory: what can be kept is kept, and the texts stay the same."""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.config import EngineConfig
from engine.engine import TorchEngine, assemble_engine, prepare_engine
from engine.plan import StepPlan
from engine.protocol import DeviceLost, EngineLost, EngineRequest, FinishReason
from engine.runner import DoneStep
from engine.sampling import SamplingParams
from engine.step_guard import StepGuard
from tests.engine.completion import drain, greedy_request, random_prompt, run_together
from tests.engine.fake_device import FakeDevice

#: A token of the one whose chunk is too much; nobody else has it.
HEAVY = 300


def torch_runs_out() -> object:
    return torch.empty(2**50)


def numpy_runs_out() -> object:
    return np.empty(2**50)


def cuda_runs_out() -> object:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


@dataclass
class Shortage:
    """Makes an engine's network run out of memory: for too many rows at once, or for certain rows."""

    engine: TorchEngine
    patch: pytest.MonkeyPatch
    max_rows: int = 10**9
    never: frozenset[int] = frozenset()
    run_out: Callable[[], object] = torch_runs_out
    tried: list[int] = field(default_factory=list)
    _forward: Callable[..., Any] = field(init=False)

    def __post_init__(self) -> None:
        model = self.engine._runner.network.model
        self._forward = model.forward
        self.patch.setattr(model, "forward", self.forward)

    def forward(self, **given: Any) -> Any:
        rows = given["input_ids"][0].tolist()
        self.tried.append(len(rows))
        # What it wrote before there was no more memory is in the cache, as on a real device.
        output = self._forward(**given)
        if len(rows) > self.max_rows or self.never & set(rows):
            self.run_out()
        return output


#: Makes engines around one network.
Build = Callable[..., TorchEngine]


@pytest.fixture(scope="module")
def build(tiny_folder: Callable[[str], Path]) -> Build:
    folder = tiny_folder("llama")
    first = prepare_engine(EngineConfig(model=str(folder), cache_dir=folder / "unused"))()

    def build(device: FakeDevice | None = None, **settings: Any) -> TorchEngine:
        settings.setdefault("kv_cache_bytes", 2**22)
        config = EngineConfig(model=str(folder), cache_dir=folder / "unused", **settings)
        return assemble_engine(
            config, network=first._runner.network, tokenizer=first.tokenizer, device=device
        )

    return build


@pytest.fixture
def engine(build: Build) -> TorchEngine:
    return build()


def requests(count: int = 6) -> list[EngineRequest]:
    """Prompts of 40, 60, 80 and so on, greedy ones and sampled ones by turns."""
    sampled = SamplingParams(temperature=1.0, seed=11, num_logprobs=2)
    return [
        EngineRequest(
            id=f"r{number}",
            token_ids=without_heavy(random_prompt(40 + 20 * number, seed=number)),
            max_tokens=12,
            sampling=sampled if number % 2 else SamplingParams(temperature=0),
        )
        for number in range(count)
    ]


def without_heavy(prompt: list[int]) -> list[int]:
    return [token if token != HEAVY else HEAVY + 1 for token in prompt]


@pytest.mark.parametrize("run_out", [torch_runs_out, numpy_runs_out, cuda_runs_out])
def test_texts_are_the_same_when_steps_are_too_large(
    build: Build, monkeypatch: pytest.MonkeyPatch, run_out: Callable[[], object]
) -> None:
    expected = run_together(build(), requests())
    engine = build()
    empty = engine.room()
    shortage = Shortage(engine, monkeypatch, max_rows=150, run_out=run_out)

    completions = run_together(engine, requests())

    assert completions == expected
    # The first step: 40 + 60 + 80 + 100 tokens of 320 that a step may have. Pieces of half of them fit.
    assert shortage.tried[:4] == [280, 100, 80, 100]
    assert engine.room() == empty


def test_texts_are_the_same_when_blocks_move_in_a_step_that_is_too_large(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 640 bytes per token: 30 blocks of the cache beside the null block, and as many on the host.
    cache_bytes = 31 * 16 * 640
    long = [greedy_request(f"r{number}", random_prompt(80, seed=number), 60) for number in range(4)]
    expected = run_together(build(), long)
    engine = build(
        kv_cache_bytes=cache_bytes,
        host_cache_bytes=cache_bytes,
        admission="optimistic",
        prefix_caching=False,
    )
    shortage = Shortage(engine, monkeypatch)
    for request in long:
        engine.add(request)
    # All four prompts are one step: from now on nobody computes a prompt.
    begun = engine.step()
    shortage.max_rows = 2

    rest = drain(engine)

    figures = engine.figures()
    assert figures.num_preemptions > 0
    assert figures.num_recomputed_tokens == 0
    for id, completion in expected.items():
        first = [token for output in begun if output.id == id for token in output.token_ids]
        assert first + rest[id].token_ids == completion.token_ids


def test_texts_are_the_same_when_steps_overlap_and_some_cannot_be_launched(build: Build) -> None:
    expected = run_together(build(), requests())
    engine = build(device=FakeDevice(random.Random(3)))
    launch = engine._runner.run
    refused: list[int] = []

    def launch_small_ones(plan: StepPlan) -> list[DoneStep]:
        # A real device finds out when it is handed the work, with the step before still under way.
        if plan.num_tokens > 150:
            refused.append(plan.num_tokens)
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return launch(plan)

    engine._guard = StepGuard(launch_small_ones)

    completions = run_together(engine, requests())

    assert completions == expected
    assert refused[0] == 280


def test_a_request_that_does_not_fit_alone_fails_alone(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = run_together(build(), requests())
    engine = build()
    empty = engine.room()
    Shortage(engine, monkeypatch, never=frozenset({HEAVY}))
    heavy = greedy_request("heavy", [*without_heavy(random_prompt(30, seed=9)), HEAVY])

    completions = run_together(engine, [*requests(3), heavy, *requests()[3:]])

    failed = completions.pop("heavy")
    assert failed.finish_reason is FinishReason.ERROR
    assert failed.error == "out of memory: 31 tokens from position 0 on are too many"
    assert failed.error_code == "out_of_memory"
    assert failed.token_ids == []
    assert completions == expected
    assert engine.room() == empty


def test_all_choices_of_a_request_that_does_not_fit_fail(
    engine: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    Shortage(engine, monkeypatch, never=frozenset({HEAVY}))
    prompt = [*without_heavy(random_prompt(30, seed=9)), HEAVY]
    engine.add(EngineRequest(id="heavy", token_ids=prompt, max_tokens=8, n=3))

    outputs = engine.step()

    assert [(output.choice, output.finish_reason) for output in outputs] == [
        (0, FinishReason.ERROR),
        (1, FinishReason.ERROR),
        (2, FinishReason.ERROR),
    ]
    assert not engine.has_work()
    assert drain(engine) == {}


def test_nothing_of_a_failed_chunk_is_found_by_others(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = without_heavy(random_prompt(200, seed=9))
    expected = run_together(build(), [greedy_request("again", prompt)])
    engine = build()
    shortage = Shortage(engine, monkeypatch, max_rows=0)
    failed = run_together(engine, [greedy_request("failed", prompt)])
    shortage.max_rows = 1000

    completions = run_together(engine, [greedy_request("again", prompt)])

    assert failed["failed"].finish_reason is FinishReason.ERROR
    assert engine.figures().num_prefix_hit_tokens == 0
    assert completions == expected


def test_an_engine_for_which_nothing_fits_is_lost(
    engine: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    Shortage(engine, monkeypatch, max_rows=0)
    for request in requests():
        engine.add(request)

    with pytest.raises(EngineLost, match="out of memory") as lost:
        engine.step()

    assert not isinstance(lost.value, DeviceLost)


def test_what_a_failed_try_holds_is_free_before_the_next_one(
    engine: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[weakref.ref[torch.Tensor]] = []
    alive: list[bool] = []

    def run_out() -> None:
        activations = torch.zeros(1000)
        held.append(weakref.ref(activations))
        torch_runs_out()

    shortage = Shortage(engine, monkeypatch, max_rows=150, run_out=run_out)
    forward = shortage.forward

    def watched(**given: Any) -> Any:
        alive.append(any(each() is not None for each in held))
        return forward(**given)

    monkeypatch.setattr(engine._runner.network.model, "forward", watched)
    run_together(engine, requests())

    assert held
    assert not any(alive)


@pytest.mark.parametrize(
    "error",
    [
        torch.AcceleratorError("CUDA error: an illegal memory access was encountered"),
        RuntimeError("CUDA error: device-side assert triggered"),
    ],
)
def test_an_error_of_the_device_is_known_as_such_and_not_tried_again(
    engine: TorchEngine, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail() -> None:
        raise error

    shortage = Shortage(engine, monkeypatch, max_rows=0, run_out=fail)
    for request in requests():
        engine.add(request)

    with pytest.raises(DeviceLost, match="CUDA error"):
        engine.step()

    assert len(shortage.tried) == 1


def test_an_engine_is_built_again_around_the_same_weights(llama_folder: Path) -> None:
    config = EngineConfig(model=str(llama_folder), cache_dir=llama_folder / "unused", kv_cache_bytes=2**22)
    build = prepare_engine(config)
    lost = build()
    expected = run_together(lost, requests())

    again = build()

    assert again._runner.network is lost._runner.network
    assert run_together(again, requests()) == expected
    assert again.figures().num_prefix_hit_tokens == 0
