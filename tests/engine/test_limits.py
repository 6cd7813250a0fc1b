"""Prompts and lengths around every limit: what is refused, by which word, and what runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import processors

from engine.engine import TorchEngine
from engine.protocol import EngineRequest, FinishReason, RejectionCode, RequestRejected
from engine.sampling import SamplingParams
from tests.engine.completion import build_tiny_engine, drain, greedy_request, random_prompt, run_together
from tests.engine.tiny_model import MAX_POSITIONS

LONG: RejectionCode = "context_length_exceeded"
WRONG: RejectionCode = "invalid_parameter"

#: 640 bytes a token, sixteen tokens a block, and the null block beside the others.
_BLOCK_BYTES = 16 * 640


def endless(id: str, num_tokens: int, max_tokens: int) -> EngineRequest:
    sampling = SamplingParams(temperature=0, ignore_eos=True)
    prompt = random_prompt(num_tokens, seed=90)
    return EngineRequest(id=id, token_ids=prompt, max_tokens=max_tokens, sampling=sampling)


def outcome(engine: TorchEngine, prompt_tokens: int, max_tokens: int) -> RejectionCode | int:
    """Why the engine refuses such a request, or how many tokens it completes it with."""
    try:
        completion = run_together(engine, [endless("mine", prompt_tokens, max_tokens)])["mine"]
    except RequestRejected as refusal:
        return refusal.code
    assert completion.finish_reason is FinishReason.LENGTH
    return len(completion.token_ids)


@pytest.mark.parametrize(
    ("prompt_tokens", "max_tokens", "expected"),
    [
        (0, 1, "empty_prompt"),
        (0, 0, "empty_prompt"),
        (1, 0, WRONG),
        (1, -1, WRONG),
        (1, 1, 1),
        (40, 60, 60),
        (1, 100, LONG),
        (40, 61, LONG),
        (90, 10, 10),
        (90, 11, LONG),
        (99, 1, 1),
        (99, 2, LONG),
        (100, 0, WRONG),
        (100, 1, LONG),
        (101, 1, LONG),
        (5000, 1, LONG),
        (1, 10**12, LONG),
    ],
)
def test_wished_length(
    llama_folder: Path, prompt_tokens: int, max_tokens: int, expected: RejectionCode | int
) -> None:
    """A prompt of all the context, or no tokens to complete it with, stops the engine."""
    engine = build_tiny_engine(llama_folder, max_model_len=100, max_num_seqs=2)

    assert outcome(engine, prompt_tokens, max_tokens) == expected
    assert outcome(engine, 3, 3) == 3


@pytest.mark.parametrize(
    ("prompt_tokens", "max_tokens", "expected"),
    [(79, 1, 1), (78, 2, 2), (60, 20, 20), (80, 1, LONG), (79, 2, LONG), (1, 80, LONG), (90, 1, LONG)],
)
@pytest.mark.parametrize("admission", ["reserve", "optimistic"])
def test_length_that_the_cache_leaves(
    llama_folder: Path,
    admission: str,
    prompt_tokens: int,
    max_tokens: int,
    expected: RejectionCode | int,
) -> None:
    """A request within the model's length and beyond the cache waits for ever."""
    engine = build_tiny_engine(llama_folder, kv_cache_bytes=6 * _BLOCK_BYTES, admission=admission)
    assert engine.limits.max_model_len == 80

    assert outcome(engine, prompt_tokens, max_tokens) == expected
    assert outcome(engine, 3, 3) == 3


def test_the_last_position_of_the_model_is_used(llama_folder: Path) -> None:
    engine = build_tiny_engine(llama_folder)

    assert outcome(engine, MAX_POSITIONS - 1, 1) == 1
    assert outcome(engine, MAX_POSITIONS, 1) == LONG


def test_cache_full_to_its_last_token_runs_one_after_the_other(llama_folder: Path) -> None:
    engine = build_tiny_engine(llama_folder, kv_cache_bytes=6 * _BLOCK_BYTES)

    completions = run_together(engine, [endless(str(i), 50, 30) for i in range(3)])

    assert [len(completions[str(i)].token_ids) for i in range(3)] == [30, 30, 30]


def test_empty_text_of_a_model_that_puts_nothing_before_it_is_refused(engine: TorchEngine) -> None:
    """A prompt without any token fails in the engine's step, and takes all others with it."""
    engine.add(greedy_request("neighbour", random_prompt(9, seed=91)))
    engine.tokenizer.fast.post_processor = processors.TemplateProcessing(single="$A", special_tokens=[])
    token_ids = engine.tokenizer.encode_text("")

    with pytest.raises(RequestRejected, match="no tokens"):
        engine.add(greedy_request("empty", token_ids))

    assert token_ids == []
    assert list(drain(engine)) == ["neighbour"]
