"""Draws follow the distribution the settings describe, row by row."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from transformers.generation.logits_process import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from engine import truncation
from engine.draw import Draw
from engine.sampler import sample
from engine.sampling import SamplingParams
from engine.uniform import uniforms

#: Neither a multiple of any block size nor small beside the number of likeliest tokens looked at.
VOCAB_SIZE = 5003

SETTINGS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.4},
    {"temperature": 1.9},
    {"top_k": 1},
    {"top_k": 50},
    {"top_k": 64},
    {"top_k": 700},
    {"top_k": 3000},
    {"top_k": VOCAB_SIZE - 1},
    {"top_p": 0.1},
    {"top_p": 0.9},
    {"top_p": 0.999, "temperature": 1.5},
    {"min_p": 0.02},
    {"min_p": 1e-6},
    {"top_k": 40, "top_p": 0.7},
    {"top_k": 10**9, "top_p": 0.8},
    {"top_k": 900, "top_p": 0.95, "min_p": 0.01, "temperature": 1.2},
]


def random_logits(rows: int, *, spread: float = 3.0, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, VOCAB_SIZE, generator=torch.Generator().manual_seed(seed)) * spread


def tokens_of(logits: torch.Tensor, draws: list[Draw]) -> list[int | None]:
    return [drawn.token for drawn in sample(logits, draws)]


def by_transformers(logits: torch.Tensor, settings: dict[str, Any]) -> np.ndarray:
    """Probabilities that transformers' own processors leave, in its order."""
    processors = LogitsProcessorList([TemperatureLogitsWarper(float(settings.get("temperature", 1.0)))])
    if settings.get("top_k"):
        processors.append(TopKLogitsWarper(settings["top_k"]))
    if settings.get("top_p", 1.0) < 1:
        processors.append(TopPLogitsWarper(settings["top_p"]))
    if settings.get("min_p"):
        processors.append(MinPLogitsWarper(settings["min_p"]))
    scores = processors(torch.zeros(1, 1, dtype=torch.long), logits[None].clone())
    probabilities: np.ndarray = torch.softmax(scores[0].double(), dim=-1).numpy()
    return probabilities


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_draw_is_where_its_uniform_falls_in_transformers_distribution(settings: dict[str, Any]) -> None:
    (logits,) = random_logits(1)
    cumulative = np.cumsum(by_transformers(logits, settings))
    seeds = list(range(400))
    draws = [Draw(SamplingParams(seed=seed, **settings), position=7) for seed in seeds]

    tokens = np.array(tokens_of(logits.expand(len(draws), -1), draws), dtype=np.int64)

    chances = uniforms(seeds, [7] * len(seeds))
    before = np.where(tokens > 0, cumulative[tokens - 1], 0)
    # What float32 leaves open is far less than the chance of any token that could be drawn.
    assert (before - 1e-6 <= chances).all()
    assert (chances < cumulative[tokens] + 1e-6).all()
    assert (np.diff(cumulative, prepend=0)[tokens] > 0).all(), "a token was drawn that is left out"


def test_top_k_keeps_all_equals_of_the_last_one() -> None:
    logits = torch.zeros(1, VOCAB_SIZE)
    logits[0, 1000:1300] = 2.0
    draws = [Draw(SamplingParams(top_k=5, seed=seed), 0) for seed in range(300)]

    tokens = [token for token in tokens_of(logits.expand(300, -1), draws) if token is not None]

    assert min(tokens) in range(1000, 1020)
    assert max(tokens) in range(1280, 1300)


def test_temperature_zero_takes_the_first_of_the_likeliest() -> None:
    logits = random_logits(1)
    logits[0, [40, 4000, VOCAB_SIZE - 1]] = 50.0

    assert tokens_of(logits, [Draw(SamplingParams(temperature=0, seed=5), 0)]) == [40]


@pytest.mark.parametrize("token", [0, 127, 128, 4095, VOCAB_SIZE - 1])
def test_the_likeliest_is_found_wherever_it_stands(token: int) -> None:
    logits = random_logits(2)
    logits[0, token] = 50.0

    greedy, drawn = tokens_of(
        logits[:1].expand(2, -1), [Draw(SamplingParams(temperature=t, seed=3), 0) for t in (0, 1)]
    )

    assert greedy == drawn == token


def test_extreme_temperatures_are_harmless() -> None:
    cold = Draw(SamplingParams(temperature=2e-5, seed=1), 0)
    hot = Draw(SamplingParams(temperature=1e15, seed=1), 0)
    logits = random_logits(1).expand(2, -1) * 1000

    tokens = tokens_of(logits, [cold, hot])

    assert tokens[0] == int(logits[0].argmax())
    assert tokens[1] == math.floor(uniforms([1], [0])[0] * VOCAB_SIZE)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("settings", [{"temperature": 0}, *SETTINGS[::3]], ids=str)
def test_row_that_is_not_finite_has_no_token(value: float, settings: dict[str, Any]) -> None:
    """NaN or infinite logits crash the batch, or give token 0 for ever."""
    logits = random_logits(1).repeat(3, 1)
    logits[1, 4] = value
    draws = [Draw(SamplingParams(seed=2, num_logprobs=1, **settings), 0)] * 3

    first, poisoned, last = sample(logits, draws)

    assert (poisoned.token, poisoned.logprobs) == (None, None)
    assert first == last == sample(logits[:1], draws[:1])[0]
    assert first.token is not None


def test_not_finite_is_seen_even_where_it_is_hidden() -> None:
    logits = random_logits(1)
    logits[0, 9] = float("nan")

    assert tokens_of(logits, [Draw(SamplingParams(stop_token_ids=(9,), min_tokens=1), 0)]) == [None]


def test_all_hidden_row_has_no_token() -> None:
    assert tokens_of(torch.full((1, VOCAB_SIZE), -float("inf")), [Draw(SamplingParams(), 0)]) == [None]


def test_neighbours_do_not_move_a_draw() -> None:
    """The draw of a seed depends on its place in the batch or on a neighbour without one."""
    logits = random_logits(6 * len(SETTINGS), spread=1.5, seed=1)
    # Many equals: which of them come first must not depend on how many a neighbour looks at.
    logits[1::2] = logits[1::2].round()
    draws = [
        Draw(SamplingParams(seed=row, num_logprobs=row % 4 or None, **SETTINGS[row % len(SETTINGS)]), row)
        for row in range(len(logits))
    ]

    together = sample(logits, draws)

    alone = [sample(logits[row : row + 1], [draw])[0] for row, draw in enumerate(draws)]
    assert together == alone
    backwards = sample(logits.flip(0), draws[::-1])
    assert backwards[::-1] == together


def test_top_k_beyond_the_vocabulary_is_off() -> None:
    """A top_k larger than the vocabulary crashes the server."""
    logits = random_logits(20)

    huge, off = (
        tokens_of(logits, [Draw(SamplingParams(top_k=k, seed=row), 1) for row in range(20)])
        for k in (10**9, 0)
    )

    assert huge == off


@pytest.mark.parametrize("vocab_size", [1, 5, 127, 128, 129, 300])
def test_small_vocabularies_are_drawn_from_too(vocab_size: int) -> None:
    logits = random_logits(1)[:, :vocab_size].expand(len(SETTINGS), -1)
    draws = [Draw(SamplingParams(seed=4, num_logprobs=20, **each), 0) for each in SETTINGS]

    drawn = sample(logits, draws)

    assert all(each.token is not None and each.token < vocab_size for each in drawn)
    assert {len(each.logprobs.top) for each in drawn if each.logprobs} == {min(20, vocab_size)}


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_looking_at_all_tokens_at_once_draws_the_same(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on a GPU, which would have to be waited for between one look and the next.
    logits = random_logits(60, seed=2)
    draws = [Draw(SamplingParams(seed=row, **settings), 2) for row in range(60)]
    expected = sample(logits, draws)

    monkeypatch.setattr(truncation, "_DEPTHS", ())

    assert sample(logits, draws) == expected
