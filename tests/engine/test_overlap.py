"""Steps that overlap on a late device say what steps one after the other say, token for token."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from engine.batch import Batch
from engine.cache import KVCache
from engine.engine import TorchEngine
from engine.network import Network
from engine.plan import StepPlan, Transfer
from engine.protocol import EngineRequest, FinishReason
from engine.sampling import SamplingParams
from engine.tokenizer import Tokenizer
from tests.engine.completion import build_tiny_engine, greedy_request, random_prompt, run_together
from tests.engine.fake_device import FakeDevice, Standstill
from tests.engine.overlap_kit import cache_of, check_idle, late, make_engine, run_choices, varied_requests
from tests.engine.test_sampled_text import generated
from tests.engine.toy_network import TOKEN_BYTES, ToyNetwork, toy_network

Build = Callable[..., TorchEngine]

#: Every way to put steps on a device.
WAYS: tuple[dict[str, bool], ...] = (
    {},
    {"cuda_graphs": False},
    {"half_batches": True},
    {"half_batches": True, "cuda_graphs": False},
    {"overlap": False},
)


@pytest.fixture
def build(llama_folder: Path) -> Build:
    tokenizer = Tokenizer.load(llama_folder)
    network = toy_network()
    return lambda device=None, **settings: make_engine(network, tokenizer, device, **settings)


@pytest.mark.parametrize("settings", WAYS)
@pytest.mark.parametrize("batching", ["continuous", "window", "static"])
def test_late_steps_say_what_steps_at_once_say(
    build: Build, batching: str, settings: dict[str, bool]
) -> None:
    requests = varied_requests(14, seed=len(settings))
    expected = run_choices(build(max_num_seqs=5, batching=batching), requests)

    engine = build(late(1), max_num_seqs=5, batching=batching, **settings)
    completions = run_choices(engine, requests)

    assert completions == expected
    check_idle(engine)


@pytest.mark.parametrize("host_cache_bytes", [0, 2**16])
@pytest.mark.parametrize("settings", WAYS)
def test_preemption_under_a_step_changes_no_token(
    build: Build, settings: dict[str, bool], host_cache_bytes: int
) -> None:
    """Blocks travel to host memory before the step that fills them is done, or come back too late."""
    requests = [
        replace(
            each,
            token_ids=each.token_ids[-20:],
            max_tokens=60,
            stop=(),
            sampling=replace(each.sampling, ignore_eos=True, stop_token_ids=()),
        )
        for each in varied_requests(14, seed=4)
    ]
    expected = run_choices(build(), requests)
    engine = build(
        late(2),
        kv_cache_bytes=21 * 16 * TOKEN_BYTES,
        admission="optimistic",
        host_cache_bytes=host_cache_bytes,
        **settings,
    )

    completions = run_choices(engine, requests)

    figures = engine.figures()
    assert completions == expected
    assert figures.num_preemptions > 0
    assert (figures.num_recomputed_tokens > 0) is (host_cache_bytes == 0)
    check_idle(engine)


@pytest.mark.parametrize("half_batches", [False, True])
def test_step_that_only_moves_blocks_is_done_when_they_have_moved(build: Build, half_batches: bool) -> None:
    """Its fence falls while a block is still to be copied, and somebody writes to that block."""
    engine = build(Standstill(random.Random(0)), host_cache_bytes=2**10, half_batches=half_batches)
    runner, cache = engine._runner, cache_of(engine)
    nothing = StepPlan(())
    keys, values = cache.layer(0)
    keys[3], values[3] = 5, 6
    keys[4], values[4] = 0, 0

    assert runner.run(StepPlan((), step=1, swap_outs=(Transfer(3, 0),))) == []
    (out,) = runner.run(nothing)
    keys[3], values[3] = 0, 0
    runner.run(StepPlan((), step=2, swap_ins=(Transfer(4, 0),)))
    (back,) = runner.run(nothing)

    assert [out.plan.step, back.plan.step] == [1, 2]
    assert (keys[4] == 5).all()
    assert (values[4] == 6).all()


def test_next_step_is_on_its_way_before_the_last_is_done(build: Build) -> None:
    """The token of a step comes out one call later, and the call after the last token is not wasted."""
    engine = build(late(0))
    engine.add(greedy_request("a", random_prompt(5, seed=1), 3))

    counts = [[len(output.token_ids) for output in engine.step()] for _ in range(4)]

    assert counts == [[], [1], [1], [1]]
    assert not engine.has_work()


def test_without_overlap_a_token_comes_out_of_the_step_that_drew_it(build: Build) -> None:
    engine = build(late(0), overlap=False)
    engine.add(greedy_request("a", random_prompt(5, seed=1), 3))

    counts = [[len(output.token_ids) for output in engine.step()] for _ in range(3)]

    assert counts == [[1], [1], [1]]
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
    check_idle(engine)


def test_blocks_of_one_who_ended_wait_for_the_step_that_still_computes_it(build: Build) -> None:
    """They are given away at once, or twice, or never."""
    engine = build(late(3), prefix_caching=False)
    blocks = engine._scheduler._blocks
    engine.add(greedy_request("gone", random_prompt(40, seed=1), 30))
    engine.step()
    engine.step()
    engine.abort("gone")

    engine.step()

    assert not engine.has_work()
    check_idle(engine)
    engine.add(greedy_request("gone", random_prompt(40, seed=1), 30))
    engine.add(greedy_request("here", random_prompt(10, seed=1), 30))
    engine.step()
    engine.step()
    assert blocks.num_fenced_blocks == 0
    engine.abort("gone")
    engine._end_overdue()
    assert blocks.num_fenced_blocks == 3


def test_fault_of_one_row_is_carried_nowhere(build: Build) -> None:
    """A row that is not finite still draws some number, which the next step looks up."""
    at_once, engine = build(max_num_seqs=3), build(late(4), max_num_seqs=3)
    # Both have the same network.
    at_once._runner.network._logits[:40] = torch.nan  # type: ignore[attr-defined]
    requests = varied_requests(12, seed=5)
    expected = run_choices(at_once, requests)

    completions = run_choices(engine, requests)

    assert completions == expected
    reasons = {each.finish_reason for each in completions.values()}
    assert reasons == {FinishReason.ERROR, FinishReason.STOP, FinishReason.LENGTH}
    check_idle(engine)


class ShortOfMemory(ToyNetwork):
    """Fails once, when it is told to."""

    is_short = False

    def forward(self, batch: Batch, cache: KVCache) -> torch.Tensor:
        if self.is_short:
            self.is_short = False
            raise MemoryError("no memory")
        return super().forward(batch, cache)


def test_after_an_error_the_step_before_it_is_still_to_be_had(llama_folder: Path) -> None:
    """A step that could not be begun takes the one under way with it."""
    network = ShortOfMemory()
    device = FakeDevice(random.Random(0), eager=True)
    engine = make_engine(cast(Network, network), Tokenizer.load(llama_folder), device)
    runner, scheduler = engine._runner, engine._scheduler
    engine.add(greedy_request("a", random_prompt(5, seed=1), 9))
    engine.step()
    network.is_short = True
    plan = scheduler.schedule()

    with pytest.raises(MemoryError):
        runner.run(plan)
    (done,) = runner.run(StepPlan(()))
    scheduler.commit(done.plan)
    engine._update(done.sampled[0])
    again = runner.run(plan) + runner.run(StepPlan(()))

    assert done.plan.step == plan.step - 1
    assert [each.plan for each in again] == [plan]
    expected = make_engine(toy_network(), engine.tokenizer)
    tokens = run_together(expected, [greedy_request("a", random_prompt(5, seed=1), 9)])["a"].token_ids
    assert [each.sampled[0].drawn.token for each in (done, *again)] == tokens[:2]


def test_repetition_penalty_is_that_of_transformers(tiny_folder: Callable[[str], Path]) -> None:
    """The penalty does not see the newest token, which the step before is still drawing."""
    folder = tiny_folder("llama")
    network = build_tiny_engine(folder)._runner.network
    engine = make_engine(network, Tokenizer.load(folder), late(5), kv_cache_bytes=2**22, half_batches=True)
    prompts = [random_prompt(length, seed=2) for length in (3, 40, 150)]
    sampling = SamplingParams(temperature=0, repetition_penalty=1.8)
    requests = [EngineRequest(str(i), ids, 20, sampling) for i, ids in enumerate(prompts)]
    mates = [greedy_request(f"mate {i}", ids, 20) for i, ids in enumerate(prompts)]

    completions = run_together(engine, [*mates, *requests])

    for i, prompt in enumerate(prompts):
        assert completions[str(i)].token_ids == generated(folder, prompt, 20, repetition_penalty=1.8)
        assert completions[f"mate {i}"].token_ids == generated(folder, prompt, 20)


def test_network_of_transformers_says_the_same_late(tiny_folder: Callable[[str], Path]) -> None:
    folder = tiny_folder("gemma2")
    network = build_tiny_engine(folder)._runner.network
    tokenizer = Tokenizer.load(folder)
    requests = [replace(each, max_tokens=8) for each in varied_requests(7, seed=8)]
    settings: dict[str, Any] = {"max_num_seqs": 5, "kv_cache_bytes": 2**22}
    expected = run_choices(make_engine(network, tokenizer, **settings), requests)

    assert run_choices(make_engine(network, tokenizer, late(6), **settings), requests) == expected
