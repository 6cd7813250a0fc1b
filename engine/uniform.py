"""One number per seed and position: randomness that does not depend on who runs beside.

There is no generator with a state. The n-th number of a seed is the n-th output of
SplitMix64 started from the mixed seed, so any row can be drawn at any time, alone or not.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_SEED_MASK = 2**64 - 1


def uniforms(seeds: list[int], positions: list[int]) -> npt.NDArray[np.float64]:
    """For each pair a number in [0, 1), with 53 random bits."""
    starts = np.array([seed & _SEED_MASK for seed in seeds], dtype=np.uint64)
    places = np.array(positions, dtype=np.uint64)
    # Neighbouring seeds are mixed apart first, or their streams would be shifts of each other.
    mixed = mix(mix(starts) + (places + np.uint64(1)) * _GOLDEN)
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def mix(state: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """SplitMix64's output function: every input bit moves about half of the output bits."""
    state = (state ^ (state >> np.uint64(30))) * _MIX_1
    state = (state ^ (state >> np.uint64(27))) * _MIX_2
    return state ^ (state >> np.uint64(31))
