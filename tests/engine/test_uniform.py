"""The uniforms are even, and the same in whatever order they are asked for."""

from __future__ import annotations

import numpy as np

from engine.uniform import mix, uniforms


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
