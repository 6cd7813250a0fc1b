"""A request that is refused, cancelled or goes wrong leaves its neighbours alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.engine import TorchEngine
from engine.protocol import EngineLost, EngineRequest, FinishReason, RequestRejected
from tests.engine.completion import (
    Completion,
    build_tiny_engine,
    drain,
    greedy_request,
    random_prompt,
    run_together,
)

PROMPT = random_prompt(20, seed=7)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"token_ids": []}, "empty_prompt"),
        ({"max_tokens": 0}, "invalid_parameter"),
        ({"stop": ("",)}, "invalid_parameter"),
        ({"token_ids": [5, 10**6]}, "invalid_parameter"),
        ({"token_ids": [5, -1]}, "invalid_parameter"),
        ({"adapter": "lora"}, "unsupported_parameter"),
        ({"grammar": "root ::= 'a'"}, "unsupported_parameter"),
        ({"max_tokens": 1005}, "context_length_exceeded"),
        ({"token_ids": random_prompt(1024, seed=1), "max_tokens": 1}, "context_length_exceeded"),
        ({"id": "neighbour"}, "duplicate_id"),
    ],
)
def test_impossible_requests_are_refused_at_the_door(
    engine: TorchEngine, change: dict[str, Any], code: str
) -> None:
    engine.add(greedy_request("neighbour", PROMPT))

    with pytest.raises(RequestRejected) as refusal:
        engine.add(replace(greedy_request("wrong", PROMPT), **change))

    assert refusal.value.code == code
    completions = drain(engine)
    assert list(completions) == ["neighbour"]
    assert len(completions["neighbour"].token_ids) == 12


def test_the_longest_request_that_is_allowed_runs(llama_folder: Path) -> None:
    engine = build_tiny_engine(llama_folder, max_model_len=40, max_num_seqs=2)

    completions = run_together(engine, [greedy_request("a", PROMPT, 20)])

    assert len(completions["a"].token_ids) == 20


def test_request_larger_than_the_cache_is_refused_and_others_finish(llama_folder: Path) -> None:
    # 640 bytes per token, two layers of two heads with 8 numbers of a key and 32 of a padded
    # value: eight blocks of sixteen tokens beside the null block.
    engine = build_tiny_engine(llama_folder, kv_cache_bytes=9 * 16 * 640)
    assert engine.limits.num_cache_tokens == engine.limits.max_model_len == 128

    with pytest.raises(RequestRejected, match="128"):
        engine.add(greedy_request("large", random_prompt(100, seed=1), 29))
    completions = run_together(engine, [greedy_request(str(i), PROMPT, 40) for i in range(5)])

    assert [len(completions[str(i)].token_ids) for i in range(5)] == [40] * 5


def test_row_that_is_not_finite_fails_alone(engine: TorchEngine) -> None:
    poison = 300
    healthy = [token for token in PROMPT if token != poison]
    expected = run_together(engine, [greedy_request("healthy", healthy)])["healthy"]
    with torch.inference_mode():
        engine._runner.network.model.get_input_embeddings().weight[poison] = float("nan")

    requests = [greedy_request("poisoned", [*healthy, poison]), greedy_request("healthy", healthy)]
    completions = run_together(engine, requests)

    assert completions["poisoned"].finish_reason is FinishReason.ERROR
    assert "finite" in str(completions["poisoned"].error)
    assert completions["healthy"] == expected
    # The blocks that held NaN are used again by the next request.
    assert run_together(engine, [greedy_request("healthy", healthy)])["healthy"] == expected


def test_failure_while_a_token_is_added_ends_that_request_alone(
    engine: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.add(greedy_request("a", PROMPT))
    engine.add(greedy_request("b", PROMPT))

    def fail(token: int) -> str:
        raise ValueError("no text for this token")

    monkeypatch.setattr(engine._requests["a"][0].text, "push", fail)
    completions = drain(engine)

    assert completions["a"].finish_reason is FinishReason.ERROR
    assert completions["a"].error == "no text for this token"
    assert completions["a"].error_code == "engine_error"
    assert completions["b"].finish_reason is FinishReason.LENGTH


def test_step_that_fails_as_a_whole_loses_the_engine(
    engine: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.add(greedy_request("a", PROMPT))

    def fail(*args: object, **options: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(engine._runner.network.model, "forward", fail)

    with pytest.raises(EngineLost, match="out of memory"):
        engine.step()


@pytest.mark.parametrize("steps_before", range(6))
def test_cancelling_frees_the_blocks_within_two_steps(llama_folder: Path, steps_before: int) -> None:
    # One seat: "waiting" waits throughout. 300 tokens are three steps of prefill, then decodes.
    engine = build_tiny_engine(llama_folder, max_num_seqs=1)
    empty = engine.room()
    engine.add(greedy_request("running", random_prompt(300, seed=8), 20))
    engine.add(greedy_request("waiting", PROMPT))
    for _ in range(steps_before):
        engine.step()

    for id in ("running", "waiting", "unknown"):
        engine.abort(id)
    outputs = engine.step() + engine.step()

    assert {output.id: output.finish_reason for output in outputs} == {
        "running": FinishReason.CANCELLED,
        "waiting": FinishReason.CANCELLED,
    }
    assert engine.room() == empty
    assert not engine.has_work()
    engine.add(greedy_request("running", PROMPT))
    assert drain(engine)["running"].finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize("end", ["cancelled", "deadline"])
def test_one_that_had_to_yield_ends_with_what_it_has(llama_folder: Path, end: str) -> None:
    engine = build_tiny_engine(llama_folder, max_num_seqs=1)
    now = [100.0]
    engine._clock = lambda: now[0]
    engine.add(replace(greedy_request("bulk", PROMPT, 50), priority=2, deadline=105.0))
    outputs = [output for _ in range(4) for output in engine.step()]
    engine.add(greedy_request("urgent", PROMPT, 20))
    outputs += engine.step()

    if end == "cancelled":
        engine.abort("bulk")
    else:
        now[0] = 105.0
    outputs += engine.step()

    bulk = Completion()
    for output in outputs:
        if output.id == "bulk":
            bulk.take(output)
    assert engine.figures().num_preemptions == 1
    assert bulk.finish_reason == end
    assert bulk.text == engine.tokenizer.decode(bulk.token_ids)
    assert len(bulk.token_ids) == 4
    assert len(drain(engine)["urgent"].token_ids) + sum(output.id == "urgent" for output in outputs) == 20
    assert engine.room() == engine.room(2) == (1, engine.limits.num_cache_tokens)


def test_room_counts_waiting_requests_as_seated(llama_folder: Path) -> None:
    engine = build_tiny_engine(llama_folder, max_num_seqs=4)
    seats, cache_tokens = engine.room()

    engine.add(greedy_request("a", PROMPT, 12))

    assert seats == 4
    assert engine.room() == (3, cache_tokens - 32)
    engine.step()
    assert engine.room() == (3, cache_tokens - 32)
    drain(engine)
    assert engine.room() == (seats, cache_tokens)


def test_lower_priority_number_runs_first(llama_folder: Path) -> None:
    engine = build_tiny_engine(llama_folder, max_num_seqs=1)
    requests = [("bulk", 5), ("standard", 2), ("interactive", 0)]
    for id, priority in requests:
        engine.add(EngineRequest(id=id, token_ids=PROMPT, max_tokens=2, priority=priority))

    ended = []
    while engine.has_work():
        ended += [output.id for output in engine.step() if output.finish_reason]

    assert ended == ["interactive", "standard", "bulk"]
