"""What is shared, given up or brought back changes no token, with a real network."""

from __future__ import annotations

import gc
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.engine import TorchEngine
from engine.protocol import EngineRequest
from engine.sampling import SamplingParams
from tests.engine.completion import (
    Completion,
    build_tiny_engine,
    drain,
    generate_alone,
    greedy_request,
    random_prompt,
    run_together,
)

BLOCK = 16


def cached_tokens(engine: TorchEngine, request: EngineRequest) -> int:
    """Runs a request and tells how much of its prompt it says was in the cache."""
    engine.add(request)
    outputs = []
    while engine.has_work():
        outputs += engine.step()
    return sum(output.cached_tokens for output in outputs)


def cache_bytes(folder: Path, num_tokens: int) -> int:
    """Bytes of a cache for so many tokens, the null block included."""
    engine = build_tiny_engine(folder, kv_cache_bytes=2**22)
    return 2**22 // (engine.limits.num_cache_tokens + BLOCK) * (num_tokens + BLOCK) + 1


@pytest.mark.parametrize("length", [1, 15, 16, 17, 31, 32, 33, 128, 129, 160])
def test_repeated_prompt_says_the_same_and_computes_its_last_token(llama_folder: Path, length: int) -> None:
    """A prompt that is cached as a whole has nothing left to compute, or computes it wrongly."""
    prompt = random_prompt(length, seed=21)
    engine = build_tiny_engine(llama_folder)
    first = run_together(engine, [greedy_request("first", prompt)])["first"]

    again = run_together(engine, [greedy_request("again", prompt)])["again"]
    cached = cached_tokens(engine, greedy_request("third", prompt))

    assert again == first
    assert [first.token_ids] == generate_alone(llama_folder, [prompt], 12)
    assert cached == (length - 1) // BLOCK * BLOCK


def test_without_prefix_caching_nothing_is_found(llama_folder: Path) -> None:
    engine = build_tiny_engine(llama_folder, prefix_caching=False)
    prompt = random_prompt(100, seed=22)

    counts = [cached_tokens(engine, greedy_request(id, prompt)) for id in ("a", "b")]

    assert counts == [0, 0]


def test_other_salt_finds_nothing(llama_folder: Path) -> None:
    engine = build_tiny_engine(llama_folder)
    request = replace(greedy_request("a", random_prompt(100, seed=22)), cache_salt="one")

    counts = [
        cached_tokens(engine, replace(request, cache_salt=salt)) for salt in ("one", "one", "two", None)
    ]

    assert counts == [0, 96, 0, 0]


def test_conversation_finds_what_was_said_before(llama_folder: Path) -> None:
    engine = build_tiny_engine(llama_folder)
    prompt = random_prompt(40, seed=23)
    said = run_together(engine, [greedy_request("a", prompt, 30)])["a"].token_ids
    longer = [*prompt, *said, *random_prompt(9, seed=24)]

    completion = run_together(engine, [greedy_request("b", longer)])["b"]
    cached = cached_tokens(engine, greedy_request("c", longer))

    assert [completion.token_ids] == generate_alone(llama_folder, [longer], 12)
    assert cached == (len(longer) - 1) // BLOCK * BLOCK


@pytest.mark.parametrize("host_cache_bytes", [0, 2**21])
def test_short_memory_changes_no_token(llama_folder: Path, host_cache_bytes: int) -> None:
    """Whoever gives up its blocks and comes back says something else; seeds and lengths included."""
    prompts = [random_prompt(20 + 9 * index, seed=25) for index in range(8)]
    requests = [greedy_request(f"greedy-{index}", ids, 40) for index, ids in enumerate(prompts)]
    requests += [
        EngineRequest(id=f"seeded-{index}", token_ids=ids, max_tokens=40, sampling=SamplingParams(seed=index))
        for index, ids in enumerate(prompts)
    ]
    roomy = build_tiny_engine(llama_folder, prefix_caching=False)
    expected = {each.id: run_together(roomy, [each])[each.id] for each in requests}
    engine = build_tiny_engine(
        llama_folder,
        kv_cache_bytes=cache_bytes(llama_folder, 400),
        host_cache_bytes=host_cache_bytes,
        admission="optimistic",
    )

    completions = run_together(engine, requests)

    figures = engine.figures()
    assert {id: each.token_ids for id, each in completions.items()} == {
        id: each.token_ids for id, each in expected.items()
    }
    assert figures.num_preemptions > 0
    assert (figures.num_recomputed_tokens > 0) is (host_cache_bytes == 0)


@pytest.mark.parametrize("steps_before", range(1, 10, 2))
@pytest.mark.parametrize("host_cache_bytes", [0, 2**21])
def test_urgent_request_interrupts_and_changes_nothing(
    llama_folder: Path, steps_before: int, host_cache_bytes: int
) -> None:
    bulk = replace(greedy_request("bulk", random_prompt(300, seed=26), 12), priority=2)
    urgent = greedy_request("urgent", random_prompt(30, seed=27), 3)
    expected = generate_alone(llama_folder, [list(bulk.token_ids), list(urgent.token_ids)], 12)
    engine = build_tiny_engine(llama_folder, max_num_seqs=1, host_cache_bytes=host_cache_bytes)
    completions: dict[str, Completion] = {"bulk": Completion(), "urgent": Completion()}
    ended = []

    engine.add(bulk)
    for step in range(200):
        if step == steps_before:
            engine.add(urgent)
        for output in engine.step() if engine.has_work() else ():
            completions[output.id].take(output)
            ended += [output.id] if output.finish_reason else []

    assert ended == ["urgent", "bulk"]
    assert completions["bulk"].token_ids == expected[0]
    assert completions["urgent"].token_ids == expected[1][:3]


@pytest.mark.parametrize("batching", ["static", "window"])
def test_older_disciplines_say_the_same(llama_folder: Path, batching: Any) -> None:
    """Rows of padding write into the blocks of others, or are attended to."""
    prompts = [random_prompt(length, seed=28) for length in (200, 3, 50, 300, 140, 1)]
    expected = generate_alone(llama_folder, prompts, max_tokens=15)
    engine = build_tiny_engine(llama_folder, max_num_seqs=4, batching=batching)

    completions = run_together(engine, [greedy_request(str(i), ids, 15) for i, ids in enumerate(prompts)])

    assert [completions[str(i)].token_ids for i in range(len(prompts))] == expected
    assert (engine.figures().num_padding_tokens > 0) is (batching == "static")


def test_what_was_not_finite_is_not_found_again(engine: TorchEngine) -> None:
    """A request that failed leaves its blocks for others to find."""
    prompt = random_prompt(60, seed=29)
    weight = engine._runner.network.model.get_input_embeddings().weight
    healthy = run_together(engine, [greedy_request("a", random_prompt(5, seed=30))])
    assert healthy["a"].error is None
    row = weight.data[prompt[0]].clone()

    weight.data[prompt[0]] = float("nan")
    failed = run_together(engine, [greedy_request("b", prompt)])["b"]
    weight.data[prompt[0]] = row
    completion = run_together(engine, [greedy_request("c", prompt)])["c"]

    assert failed.error is not None
    assert completion.error is None


def test_settings_that_do_not_go_together_are_refused(llama_folder: Path) -> None:
    for wrong, match in (
        ({"admission": "lucky"}, "admission"),
        ({"batching": "none"}, "batching"),
        ({"host_cache_bytes": -1}, "host_cache_bytes"),
        ({"batching": "static", "admission": "optimistic"}, "reserve"),
    ):
        with pytest.raises(ValueError, match=match):
            build_tiny_engine(llama_folder, **wrong)


def test_tiny_requests_leave_nothing_behind(llama_folder: Path) -> None:
    """Something is kept of every request that ever was."""
    num_requests = 3000
    engine = build_tiny_engine(llama_folder, kv_cache_bytes=cache_bytes(llama_folder, 2000))
    counts = []
    for round_ in range(10):
        for index in range(num_requests // 10):
            prompt = [3 + round_, 3 + index % 300, 3 + index // 300]
            engine.add(greedy_request(f"{round_}-{index}", prompt, 1))
        drain(engine)
        gc.collect()
        counts.append(sys.getallocatedblocks())

    assert engine.figures().num_steps > 10
    # One object for each request would be two thousand and four hundred.
    assert max(counts[2:]) - counts[1] < num_requests / 2
