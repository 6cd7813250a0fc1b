"""Draws follow the distribution the settings describe, row by row."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.sampler import Draw, sample
from engine.sampling import SamplingParams
from engine.uniform import mix, uniforms

LOGITS = torch.tensor([2.0, 1.0, 0.5, 0.0, -1.0, -3.0])


def draw_many(params: dict[str, float | int], count: int = 4000) -> np.ndarray:
    draws = [Draw(SamplingParams(seed=seed, **params), position=0) for seed in range(count)]  # type: ignore[arg-type]
    tokens = sample(LOGITS.expand(count, -1), draws)
    return np.bincount(np.array(tokens, dtype=np.int64), minlength=len(LOGITS)) / count


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_frequencies_follow_the_softmax(temperature: float) -> None:
    expected = np.exp(LOGITS.numpy() / temperature)

    frequencies = draw_many({"temperature": temperature})

    np.testing.assert_allclose(frequencies, expected / expected.sum(), atol=0.03)


def test_top_k_leaves_the_k_likeliest() -> None:
    expected = np.where(np.arange(6) < 2, np.exp(LOGITS.numpy()), 0)

    frequencies = draw_many({"top_k": 2})

    assert not frequencies[2:].any()
    np.testing.assert_allclose(frequencies, expected / expected.sum(), atol=0.03)


def test_top_p_leaves_the_fewest_that_reach_it() -> None:
    probabilities = torch.softmax(LOGITS, 0).numpy()
    needed = int(np.searchsorted(np.cumsum(probabilities), 0.8)) + 1

    frequencies = draw_many({"top_p": 0.8})

    assert needed == 3
    assert (frequencies[:needed] > 0).all()
    assert not frequencies[needed:].any()


def test_top_p_applies_to_what_top_k_left() -> None:
    # Of the two likeliest, the first alone has 0.73 of their sum but 0.59 of all.
    frequencies = draw_many({"top_k": 2, "top_p": 0.7})

    assert frequencies[0] == 1


def test_top_p_beyond_the_first_candidates_keeps_a_flat_tail() -> None:
    logits = torch.zeros(1, 2000)
    logits[0, :1000] = 1.0
    params = {seed: SamplingParams(top_p=0.7, seed=seed) for seed in range(300)}

    tokens = sample(logits.expand(300, -1), [Draw(each, 0) for each in params.values()])

    # The larger half holds 0.73: nothing of the smaller half may be drawn, and no part missed.
    drawn = [token for token in tokens if token is not None]
    assert max(drawn) < 1000
    assert max(drawn) > 900


def test_temperature_zero_takes_the_first_of_the_likeliest() -> None:
    logits = torch.tensor([[0.0, 3.0, 3.0]])

    assert sample(logits, [Draw(SamplingParams(temperature=0, seed=5), 0)]) == [1]


def test_extreme_temperatures_are_harmless() -> None:
    cold = Draw(SamplingParams(temperature=2e-5, seed=1), 0)
    hot = Draw(SamplingParams(temperature=1e30, seed=1), 0)

    tokens = sample(LOGITS.expand(2, -1) * 1000, [cold, hot])

    assert tokens[0] == 0
    assert tokens[1] in range(6)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_row_that_is_not_finite_has_no_token(value: float, temperature: float) -> None:
    logits = LOGITS.repeat(3, 1)
    logits[1, 4] = value
    draws = [Draw(SamplingParams(temperature=temperature, seed=2), 0)] * 3

    first, poisoned, last = sample(logits, draws)

    assert poisoned is None
    assert first == last == sample(LOGITS[None], draws[:1])[0]


def test_all_hidden_row_has_no_token() -> None:
    assert sample(torch.full((1, 6), -float("inf")), [Draw(SamplingParams(), 0)]) == [None]


def test_neighbours_do_not_move_a_draw() -> None:
    torch.manual_seed(1)
    logits = torch.randn(40, 500)
    kinds: list[dict[str, float | int]] = [{}, {"top_k": 7}, {"top_p": 0.5}, {"temperature": 0}]
    draws = [
        Draw(SamplingParams(seed=row, **kinds[row % 4]), position=row)  # type: ignore[arg-type]
        for row in range(40)
    ]

    together = sample(logits, draws)
    alone = [sample(logits[row : row + 1], [draw])[0] for row, draw in enumerate(draws)]

    assert together == alone


def test_uniforms_are_even_and_independent_of_order() -> None:
    seeds, positions = [seed for seed in range(100) for _ in range(100)], list(range(100)) * 100

    numbers = uniforms(seeds, positions)

    counts, _ = np.histogram(numbers, bins=20, range=(0, 1))
    chi_square = ((counts - 500) ** 2 / 500).sum()
    assert chi_square < 43.8, "beyond the 0.1 % quantile of 19 degrees of freedom"
    grid = numbers.reshape(100, 100)
    for left, right in ((grid[:-1], grid[1:]), (grid[:, :-1], grid[:, 1:])):
        assert abs(np.corrcoef(left.ravel(), right.ravel())[0, 1]) < 0.04
    assert (uniforms(seeds[::-1], positions[::-1]) == numbers[::-1]).all()


def test_mixing_is_splitmix64() -> None:
    # The first outputs published for the seed 1234567.
    states = np.array([1234567], dtype=np.uint64) + np.array([1, 2, 3], dtype=np.uint64) * np.uint64(
        0x9E3779B97F4A7C15
    )

    assert mix(states).tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_p", float("nan")),
        ("top_k", -1),
        ("top_k", 1.5),
        ("seed", 0.5),
        ("stop_token_ids", (-1,)),
    ],
)
def test_wrong_settings_are_named(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=field):
        SamplingParams(**{field: value})  # type: ignore[arg-type]
