"""How a completion ends, and what is counted and shown when it does."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from engine.engine import TorchEngine
from engine.protocol import EngineRequest, FinishReason
from engine.sampling import SamplingParams
from tests.engine.completion import Completion, build_tiny_engine, greedy_request, random_prompt, run_together

PROMPT = random_prompt(20, seed=6)


def complete(engine: TorchEngine, request: EngineRequest) -> Completion:
    return run_together(engine, [request])[request.id]


def folder_that_ends_with(folder: Path, target: Path, tokens: list[int]) -> Path:
    """The same model with other end tokens."""
    shutil.copytree(folder, target)
    path = target / "generation_config.json"
    settings = json.loads(path.read_text())
    path.write_text(json.dumps(settings | {"eos_token_id": tokens}))
    return target


@pytest.mark.parametrize("max_tokens", [1, 2, 7])
def test_max_tokens_is_the_length(engine: TorchEngine, max_tokens: int) -> None:
    completion = complete(engine, greedy_request("a", PROMPT, max_tokens))

    assert len(completion.token_ids) == max_tokens
    assert completion.finish_reason is FinishReason.LENGTH
    assert completion.text == engine.tokenizer.decode(completion.token_ids)


def test_end_token_first_gives_an_empty_completion(llama_folder: Path, tmp_path: Path) -> None:
    first = complete(build_tiny_engine(llama_folder), greedy_request("a", PROMPT, 1)).token_ids
    folder = folder_that_ends_with(llama_folder, tmp_path / "model", [1, *first])

    completion = complete(build_tiny_engine(folder), greedy_request("a", PROMPT))

    assert completion == Completion(token_ids=[], texts=[""], finish_reason=FinishReason.STOP)


def test_end_token_is_neither_counted_nor_shown(llama_folder: Path, tmp_path: Path) -> None:
    plain = complete(build_tiny_engine(llama_folder), greedy_request("a", PROMPT))
    at = next(i for i, token in enumerate(plain.token_ids) if i and token not in plain.token_ids[:i])
    folder = folder_that_ends_with(llama_folder, tmp_path / "model", [plain.token_ids[at]])
    engine = build_tiny_engine(folder)

    completion = complete(engine, greedy_request("a", PROMPT))

    assert completion.token_ids == plain.token_ids[:at]
    assert completion.text == engine.tokenizer.decode(plain.token_ids[:at])
    assert completion.finish_reason is FinishReason.STOP


def test_ignore_eos_counts_every_token(llama_folder: Path, tmp_path: Path) -> None:
    plain = complete(build_tiny_engine(llama_folder), greedy_request("a", PROMPT))
    folder = folder_that_ends_with(llama_folder, tmp_path / "model", plain.token_ids[:1])
    request = replace(greedy_request("a", PROMPT), sampling=SamplingParams(temperature=0, ignore_eos=True))

    completion = complete(build_tiny_engine(folder), request)

    assert completion.token_ids == plain.token_ids
    assert completion.finish_reason is FinishReason.LENGTH


def test_stop_token_ends_the_text_even_with_ignore_eos(engine: TorchEngine) -> None:
    plain = complete(engine, greedy_request("a", PROMPT))
    sampling = SamplingParams(temperature=0, ignore_eos=True, stop_token_ids=(plain.token_ids[0],))

    completion = complete(engine, replace(greedy_request("b", PROMPT), sampling=sampling))

    assert completion.token_ids == []
    assert completion.finish_reason is FinishReason.STOP


def test_stop_string_is_cut_wherever_it_starts(engine: TorchEngine) -> None:
    text = complete(engine, greedy_request("plain", PROMPT, 30)).text
    pieces = [text[at : at + 3] for at in range(len(text) - 3)]
    stops = [piece for piece in pieces if "\N{REPLACEMENT CHARACTER}" not in piece]
    assert len(stops) > 5
    requests = [replace(greedy_request(str(at), PROMPT, 30), stop=(stop,)) for at, stop in enumerate(stops)]

    completions = run_together(engine, requests)

    for at, stop in enumerate(stops):
        completion = completions[str(at)]
        assert completion.text == text.split(stop)[0]
        assert completion.finish_reason is FinishReason.STOP
        assert stop in engine.tokenizer.decode(completion.token_ids)


def test_stop_string_that_never_comes_changes_nothing(engine: TorchEngine) -> None:
    plain = complete(engine, greedy_request("a", PROMPT, 30))

    completion = complete(
        engine, replace(greedy_request("b", PROMPT, 30), stop=(plain.text[-2:] + "never", "neither"))
    )

    assert completion.text == plain.text
    assert completion.token_ids == plain.token_ids
    assert completion.finish_reason is plain.finish_reason


def test_deadline_keeps_what_was_computed(llama_folder: Path) -> None:
    engine = build_tiny_engine(llama_folder)
    now = [100.0]
    engine._clock = lambda: now[0]
    engine.add(replace(greedy_request("a", PROMPT, 50), deadline=105.0))

    outputs = [output for _ in range(4) for output in engine.step()]
    now[0] = 105.0
    outputs += engine.step()

    completion = Completion()
    for output in outputs:
        completion.take(output)
    assert completion.finish_reason is FinishReason.DEADLINE
    assert len(completion.token_ids) == 4
    assert completion.text == engine.tokenizer.decode(completion.token_ids)
    assert not engine.has_work()
