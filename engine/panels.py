"""Weights laid out in panels for the CPU, in float32 or int8, and the product of a tile with one.

    float32   [panel, input, 16 outputs]                        no scales
    int8      [panel, pair of inputs, 16 outputs, 2 inputs]     a scale per output

The kernels of `product` are written once for both: what depends on the kind of a weight is
here, and numba chooses it by the type of the panels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types
from numba.extending import overload

from engine.attention.cpu_kernel import FAST_MATH
from engine.attention.micro_kernel import product_kernel
from engine.integer_kernel import integer_product_kernel
from engine.rounding import round_row, round_rows

#: Outputs of a panel.
PANEL = 16
#: Rows of a tile: two vectors of sums for each fill the 16 registers of AVX2, but for the factors.
TILE_ROWS = 6

_Floats = npt.NDArray[np.float32]
_heights = range(TILE_ROWS, 0, -1)
_by6, _by5, _by4, _by3, _by2, _by1 = (product_kernel(n, stretch=PANEL, chains=1) for n in _heights)
_int6, _int5, _int4, _int3, _int2, _int1 = (integer_product_kernel(n) for n in _heights)
_OPTIONS = {"fastmath": FAST_MATH, "error_model": "numpy"}


@dataclass(frozen=True, slots=True)
class Panels:
    """A weight in panels; `arrays` is what the kernels take: the numbers and their scales."""

    arrays: tuple[npt.NDArray[Any], _Floats]


#: Lays out weights [outputs, inputs] of one width, whose panels take turns.
Pack = Callable[[Sequence[_Floats]], Panels]


def float_panels(weights: Sequence[_Floats]) -> Panels:
    """Weights [outputs, inputs] of one width, whose panels take turns; the last of each filled up."""
    packed = [_in_panels(weight).transpose(0, 2, 1) for weight in weights]
    return Panels((_by_turns(packed), np.empty(0, np.float32)))


def int8_panels(weights: Sequence[_Floats]) -> Panels:
    """The same rounded to int8, each output by a scale of its own."""
    packed, scales = [], []
    for weight in weights:
        num_outputs, num_inputs = weight.shape
        integers = np.zeros((num_outputs, num_inputs + num_inputs % 2), np.int8)
        own_scales = np.empty(num_outputs, np.float32)
        round_rows(weight, integers, own_scales)
        panels = _in_panels(integers)
        packed.append(panels.reshape(len(panels), PANEL, -1, 2).transpose(0, 2, 1, 3))
        scales.append(_in_panels(own_scales[:, None])[:, :, 0])
    return Panels((_by_turns(packed), _by_turns(scales).reshape(-1)))


def _in_panels(weight: npt.NDArray[Any]) -> npt.NDArray[Any]:
    num_outputs, num_inputs = weight.shape
    filled = np.zeros((-(-num_outputs // PANEL) * PANEL, num_inputs), dtype=weight.dtype)
    filled[:num_outputs] = weight
    return filled.reshape(-1, PANEL, num_inputs)


def _by_turns(packed: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    stacked = np.stack(packed, axis=1)
    return np.ascontiguousarray(stacked.reshape(-1, *stacked.shape[2:]))


def numbers_for(weight: Any, rows: Any) -> Any:
    """Inside a kernel: rows as their products with `weight` take them, and the rows' scales."""
    raise NotImplementedError


@overload(numbers_for, jit_options=_OPTIONS)
def _numbers_for(weight, rows):  # type: ignore[no-untyped-def]
    def as_they_are(weight, rows):  # type: ignore[no-untyped-def]
        return rows, np.empty(0, np.float32)

    def rounded(weight, rows):  # type: ignore[no-untyped-def]
        integers = np.zeros((rows.shape[0], 2 * weight[0].shape[1]), np.int16)
        scales = np.empty(rows.shape[0], np.float32)
        for row in range(rows.shape[0]):
            round_row(rows[row], integers[row], scales, row)
        return integers, scales

    return rounded if weight[0].dtype == types.int8 else as_they_are


def multiply_tile(
    weight: Any, panel: int, numbers: Any, first: int, count: int, out: Any, at: int, stride: int, more: bool
) -> None:
    """Inside a kernel: the product of `count` <= 6 of the numbers with one panel, [count, 16].

    It is written into `out`, flat from `at` on; `more` adds it to what `out` holds.
    """
    raise NotImplementedError


@overload(multiply_tile, jit_options=_OPTIONS)
def _multiply_tile(weight, panel, numbers, first, count, out, at, stride, more):  # type: ignore[no-untyped-def]
    return _int8_tile if weight[0].dtype == types.int8 else _float_tile


def _float_tile(weight, panel, numbers, first, count, out, at, stride, more):  # type: ignore[no-untyped-def]
    panels, rows = weight[0], numbers[0]
    width = rows.shape[1]
    a, b = first * width, panel * width * PANEL
    if count == 6:
        _by6(rows, a, width, panels, b, PANEL, width, out, at, stride, more)
    elif count == 5:
        _by5(rows, a, width, panels, b, PANEL, width, out, at, stride, more)
    elif count == 4:
        _by4(rows, a, width, panels, b, PANEL, width, out, at, stride, more)
    elif count == 3:
        _by3(rows, a, width, panels, b, PANEL, width, out, at, stride, more)
    elif count == 2:
        _by2(rows, a, width, panels, b, PANEL, width, out, at, stride, more)
    else:
        _by1(rows, a, width, panels, b, PANEL, width, out, at, stride, more)


def _int8_tile(weight, panel, numbers, first, count, out, at, stride, more):  # type: ignore[no-untyped-def]
    panels, scales = weight
    rows, row_scales = numbers
    width = rows.shape[1]
    a, b, c, pairs = first * width, panel * width * PANEL, panel * PANEL, width // 2
    if count == 6:
        _int6(rows, a, width, panels, b, pairs, row_scales, first, scales, c, out, at, stride, more)
    elif count == 5:
        _int5(rows, a, width, panels, b, pairs, row_scales, first, scales, c, out, at, stride, more)
    elif count == 4:
        _int4(rows, a, width, panels, b, pairs, row_scales, first, scales, c, out, at, stride, more)
    elif count == 3:
        _int3(rows, a, width, panels, b, pairs, row_scales, first, scales, c, out, at, stride, more)
    elif count == 2:
        _int2(rows, a, width, panels, b, pairs, row_scales, first, scales, c, out, at, stride, more)
    else:
        _int1(rows, a, width, panels, b, pairs, row_scales, first, scales, c, out, at, stride, more)
