"""Rounds rows of numbers to int8, each by a scale of its own, so that no row changes another."""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.attention.micro_kernel import float_of_bits

_f32 = np.float32
_LARGEST = _f32(127.0)
_WITHOUT_SIGN = np.int32(0x7FFFFFFF)


# Not in fast mathematics: a row that is not finite must stay so.
@njit(nogil=True, error_model="numpy")
def round_row(numbers, integers, scales, row):  # type: ignore[no-untyped-def]
    """Round numbers to [-127, 127]; the scale is the largest of them over 127.

    The scale of a row with an infinity or NaN is not finite either.
    """
    # Without their sign, floating-point numbers have the order of their bits; NaN is the largest.
    bits = numbers.view(np.int32)
    largest_bits = np.int32(0)
    for at in range(bits.size):
        largest_bits = max(largest_bits, bits[at] & _WITHOUT_SIGN)
    largest = float_of_bits(largest_bits)
    scales[row] = largest / _LARGEST
    factor = _LARGEST / largest if largest > 0 else _f32(0.0)
    for at in range(numbers.size):
        integers[at] = np.int32(np.floor(numbers[at] * factor + _f32(0.5)))


@njit(nogil=True, error_model="numpy")
def round_rows(rows, integers, scales):  # type: ignore[no-untyped-def]
    """The same for every row; `integers` may be wider."""
    for row in range(rows.shape[0]):
        round_row(rows[row], integers[row], scales, row)
