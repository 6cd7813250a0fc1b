"""A small matrix product in 8-bit integers, in LLVM's terms, for numba to inline.

Inputs are taken by twos, so that one instruction multiplies 16-bit numbers and adds each pair:

    a[0, 2k], a[0, 2k+1]    [ s s s s ... s ]
    a[1, 2k], a[1, 2k+1]    [ s s s s ... s ]  += a[row, 2k] * b[k, :, 0] + a[row, 2k+1] * b[k, :, 1]
    a[2, 2k], a[2, 2k+1]    [ s s s s ... s ]

The sums are exact: 2^17 inputs of the largest numbers would fit into 32 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

#: Outputs computed together.
STRETCH = 16

_INT32 = ir.IntType(32)
_BYTES = ir.VectorType(ir.IntType(8), 2 * STRETCH)
_SHORTS = ir.VectorType(ir.IntType(16), 2 * STRETCH)
_SUMS = ir.VectorType(_INT32, STRETCH)
_FLOATS = ir.VectorType(ir.FloatType(), STRETCH)


@dataclass(frozen=True)
class _IntegerProductCode:
    """Emits the instructions of one kernel."""

    num_rows: int

    def generate(self, context: Any, builder: Any, signature: Any, args: Any) -> Any:
        """Emit the kernel; numba's signature of a code generator."""

        def start(position: int) -> Any:
            array = context.make_array(signature.args[position])(context, builder, args[position])
            return builder.gep(array.data, [args[position + 1]])

        def row(pointer: Any, stride: Any, number: int) -> Any:
            return builder.gep(pointer, [builder.mul(stride, ir.Constant(stride.type, number))])

        numbers = range(self.num_rows)
        rows = [row(start(0), args[2], number) for number in numbers]
        sums = [cgutils.alloca_once(builder, _SUMS) for _ in numbers]
        for total in sums:
            builder.store(ir.Constant(_SUMS, None), total)
        right_start, count = start(3), args[5]
        with cgutils.for_range(builder, count) as loop:
            self._add_term(builder, rows, right_start, loop.index, sums)
        columns = _load(builder, start(8), _FLOATS)
        # Said to be one operation: left to the compiler, it would be one for some heights only.
        multiply_add = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_FLOATS, [_FLOATS] * 3), f"llvm.fma.v{STRETCH}f32"
        )
        for number in numbers:
            target = row(start(10), args[12], number)
            held = cgutils.alloca_once(builder, _FLOATS)
            builder.store(ir.Constant(_FLOATS, None), held)
            with builder.if_then(args[13]):
                builder.store(_load(builder, target, _FLOATS), held)
            scale = builder.load(builder.gep(start(6), [ir.Constant(count.type, number)]))
            scales = builder.fmul(columns, _spread(builder, scale, _FLOATS))
            total = builder.sitofp(builder.load(sums[number]), _FLOATS)
            result = builder.call(multiply_add, [total, scales, builder.load(held)])
            builder.store(result, builder.bitcast(target, _FLOATS.as_pointer())).align = 4
        return context.get_dummy_value()

    def _add_term(self, builder: Any, rows: list[Any], right_start: Any, index: Any, sums: list[Any]) -> None:
        size = index.type
        place = builder.gep(right_start, [builder.mul(index, ir.Constant(size, 2 * STRETCH))])
        right = builder.sext(_load(builder, place, _BYTES, align=1), _SHORTS)
        first = builder.mul(index, ir.Constant(size, 2))
        for row, total in zip(rows, sums, strict=True):
            pair = builder.load(builder.bitcast(builder.gep(row, [first]), _INT32.as_pointer()))
            pair.align = 2
            left = builder.bitcast(_spread(builder, pair, _SUMS), _SHORTS)
            builder.store(builder.add(builder.load(total), _sums_of_pairs(builder, left, right)), total)


def _sums_of_pairs(builder: Any, left: Any, right: Any) -> Any:
    """Products of 16-bit numbers, neighbours added up; on x86 LLVM makes one `pmaddwd` of it."""
    wide = ir.VectorType(_INT32, 2 * STRETCH)
    products = builder.mul(builder.sext(left, wide), builder.sext(right, wide))
    evens = _part(builder, products, range(0, 2 * STRETCH, 2))
    return builder.add(evens, _part(builder, products, range(1, 2 * STRETCH, 2)))


def _part(builder: Any, vector: Any, lanes: range) -> Any:
    return builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), _lanes(lanes))


def _lanes(lanes: range) -> Any:
    return ir.Constant(ir.VectorType(_INT32, len(lanes)), list(lanes))


def _load(builder: Any, pointer: Any, kind: Any, *, align: int = 4) -> Any:
    loaded = builder.load(builder.bitcast(pointer, kind.as_pointer()))
    loaded.align = align
    return loaded


def _spread(builder: Any, number: Any, kind: Any) -> Any:
    undefined = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(undefined, number, ir.Constant(_INT32, 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(_INT32, kind.count), None))


def integer_product_kernel(num_rows: int) -> Any:
    """A kernel (a, offset, row stride, b, offset, count, row scales, offset, output scales, offset,
    out, offset, row stride, accumulate) for

        out[r, :16] = row scale[r] * output scale[:16] * sum over k < 2 count of a[r, k] * b[k, :16]

    with a in int16 and b in int8, [count, 16, 2]. Offsets and strides are in numbers. With
    `accumulate` the product is added to what `out` holds.
    """
    code = _IntegerProductCode(num_rows)

    # numba reads the parameters off the function, so they are all named.
    @intrinsic
    def product(  # type: ignore[no-untyped-def]
        typing, a, a_at, a_stride, b, b_at, count, row_scales, row_at, scales, at, out, out_at, stride, more
    ):
        size = types.intp
        signature = types.void(
            a, size, size, b, size, size, row_scales, size, scales, size, out, size, size, types.boolean
        )
        return signature, code.generate

    return product
