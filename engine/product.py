"""Matrix products for the CPU, with weights laid out in panels, compiled by numba.

    weight   panels of 16 outputs            read once per call, from one end to the other
    tile     up to 6 rows x one panel        its sums stay in registers

A number of the result is summed up from the first input to the last, in one chain; so a row's
result is the same, bit for bit, whatever is computed beside it.

Some products come in pairs, a left and a right panel whose results only matter together: what
is made of them happens while they are still near.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from engine.attention.cpu_kernel import FAST_MATH, exponential
from engine.panels import PANEL, TILE_ROWS, multiply_tile, numbers_for

_f32 = np.float32


@njit(fastmath=FAST_MATH, error_model="numpy")
def _multiply_pair(weight, pair, numbers, first, count, left, right):  # type: ignore[no-untyped-def]
    """The products of `count` rows with both panels of a pair, into tiles of their own."""
    multiply_tile(weight, 2 * pair, numbers, first, count, left, 0, PANEL, False)
    multiply_tile(weight, 2 * pair + 1, numbers, first, count, right, 0, PANEL, False)


@njit(parallel=True, fastmath=FAST_MATH, nogil=True, error_model="numpy")
def multiply(rows, weight, start, out, num_parts):  # type: ignore[no-untyped-def]
    """Write `start` + rows [rows, inputs] times the weight into `out` [rows, outputs].

    `start` has no rows (nothing is added), one (added to all) or as many as `out`. The panels
    are dealt out to `num_parts` threads; rows are rounded by each, which is sooner done than
    waited for.
    """
    num_rows, num_outputs = out.shape
    num_tiles = -(-num_rows // TILE_ROWS)
    more = start.shape[0] > 0
    for part in prange(num_parts):
        numbers = numbers_for(weight, rows)
        tail = np.empty((TILE_ROWS, PANEL), np.float32)
        num_panels = weight[0].shape[0]
        for panel in range(num_panels * part // num_parts, num_panels * (part + 1) // num_parts):
            column = panel * PANEL
            valid = min(PANEL, num_outputs - column)
            for tile in range(num_tiles):
                # All tiles of about the same height: low ones are the least efficient.
                first, end = num_rows * tile // num_tiles, num_rows * (tile + 1) // num_tiles
                if more:
                    for row in range(first, end):
                        for at in range(column, column + valid):
                            out[row, at] = start[min(row, start.shape[0] - 1), at]
                if valid == PANEL:
                    at = first * num_outputs + column
                    multiply_tile(weight, panel, numbers, first, end - first, out, at, num_outputs, more)
                else:
                    multiply_tile(weight, panel, numbers, first, end - first, tail, 0, PANEL, False)
                    for row in range(first, end):
                        for at in range(valid):
                            number = tail[row - first, at]
                            out[row, column + at] = out[row, column + at] + number if more else number


@njit(fastmath=FAST_MATH, error_model="numpy")
def normalise(rows, weight, epsilon):  # type: ignore[no-untyped-def]
    """Every row over its root mean square, times the weight (RMSNorm)."""
    out = np.empty_like(rows)
    for row in range(rows.shape[0]):
        squares = _f32(0.0)
        for at in range(rows.shape[1]):
            squares += rows[row, at] * rows[row, at]
        factor = _f32(1.0) / np.sqrt(squares / _f32(rows.shape[1]) + epsilon)
        for at in range(rows.shape[1]):
            out[row, at] = weight[at] * (rows[row, at] * factor)
    return out


@njit(parallel=True, fastmath=FAST_MATH, nogil=True, error_model="numpy")
def multiply_gated(rows, norm, epsilon, weight, bias, out, num_parts):  # type: ignore[no-untyped-def]
    """SiLU(gate) * up of the normalised rows, into `out` [rows, outputs].

    Panels come in pairs, of gate and of up; `bias` [2, outputs] may have no outputs. Every
    thread normalises all rows for itself, which is sooner done than waited for.
    """
    num_rows, num_outputs = out.shape
    num_tiles = -(-num_rows // TILE_ROWS)
    num_pairs = weight[0].shape[0] // 2
    for part in prange(num_parts):
        numbers = numbers_for(weight, normalise(rows, norm, epsilon))
        left = np.empty((TILE_ROWS, PANEL), np.float32)
        right = np.empty((TILE_ROWS, PANEL), np.float32)
        for pair in range(num_pairs * part // num_parts, num_pairs * (part + 1) // num_parts):
            column = pair * PANEL
            valid = min(PANEL, num_outputs - column)
            for tile in range(num_tiles):
                first, end = num_rows * tile // num_tiles, num_rows * (tile + 1) // num_tiles
                _multiply_pair(weight, pair, numbers, first, end - first, left, right)
                if bias.shape[1]:
                    for row in range(end - first):
                        for at in range(valid):
                            left[row, at] += bias[0, column + at]
                            right[row, at] += bias[1, column + at]
                for row in range(end - first):
                    for at in range(PANEL):
                        gate = left[row, at]
                        sigmoid = _f32(1.0) / (_f32(1.0) + exponential(min(-gate, _f32(87.0))))
                        left[row, at] = gate * sigmoid * right[row, at]
                    for at in range(valid):
                        out[first + row, column + at] = left[row, at]


@njit(parallel=True, fastmath=FAST_MATH, nogil=True, error_model="numpy")
def multiply_rotated(rows, norm, epsilon, weight, bias, pairs, cosines, sines, out, num_parts):  # type: ignore[no-untyped-def]
    """Queries, keys and values of the normalised rows, rotated by their positions.

    `out` is flat: queries [rows, width], then keys, then values. A pair of panels holds columns
    of a head's first half and of its second, which rotate together; `pairs` says of each where
    it belongs: (start of its kind in `out` per row, width of its kind, left column, right
    column, number of columns, place in the angles or -1 if it is not rotated). `bias` [2, pairs
    x 16] may have no pairs; `cosines` and `sines` are [rows, width of a head].
    """
    num_rows = rows.shape[0]
    num_tiles = -(-num_rows // TILE_ROWS)
    half = cosines.shape[1] // 2
    for part in prange(num_parts):
        numbers = numbers_for(weight, normalise(rows, norm, epsilon))
        left = np.empty((TILE_ROWS, PANEL), np.float32)
        right = np.empty((TILE_ROWS, PANEL), np.float32)
        num_pairs = pairs.shape[0]
        for pair in range(num_pairs * part // num_parts, num_pairs * (part + 1) // num_parts):
            kind_start, kind_width, column = pairs[pair, 0], pairs[pair, 1], pairs[pair, 2]
            other, valid, angle = pairs[pair, 3], pairs[pair, 4], pairs[pair, 5]
            for tile in range(num_tiles):
                first, end = num_rows * tile // num_tiles, num_rows * (tile + 1) // num_tiles
                _multiply_pair(weight, pair, numbers, first, end - first, left, right)
                for row in range(end - first):
                    begin = kind_start * num_rows + (first + row) * kind_width
                    for at in range(valid):
                        a, b = left[row, at], right[row, at]
                        if bias.shape[1]:
                            a, b = a + bias[0, pair * PANEL + at], b + bias[1, pair * PANEL + at]
                        if angle >= 0:
                            near, far = angle + at, half + angle + at
                            turned = a * cosines[first + row, near] - b * sines[first + row, near]
                            b = b * cosines[first + row, far] + a * sines[first + row, far]
                            a = turned
                        out[begin + column + at] = a
                        out[begin + other + at] = b
