"""A small matrix product in LLVM's terms, for numba to inline.

Compilers do not keep several rows of sums in registers by themselves; here they are one
vector variable each:

    a[0, k]  [ s s s s ... s ]
    a[1, k]  [ s s s s ... s ]  += a[row, k] * b[k, 0..stretch]   for every k
    a[2, k]  [ s s s s ... s ]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_FLOAT = ir.FloatType()
_INT32 = ir.IntType(32)


@dataclass(frozen=True)
class _ProductCode:
    """Emits the instructions of one kernel."""

    num_rows: int
    stretch: int
    chains: int

    @property
    def vector(self) -> Any:
        return ir.VectorType(_FLOAT, self.stretch)

    def generate(self, context: Any, builder: Any, signature: Any, args: Any) -> Any:
        """Emit the kernel; numba's signature of a code generator."""

        def start(position: int) -> Any:
            array = context.make_array(signature.args[position])(context, builder, args[position])
            return builder.gep(array.data, [args[position + 1]])

        count, accumulate = args[6], args[10]
        rows = [_row(builder, start(0), args[2], row) for row in range(self.num_rows)]
        targets = [_row(builder, start(7), args[9], row) for row in range(self.num_rows)]
        sums = self._zeros(builder)
        self._add_all(builder, (rows, start(3), args[5]), count, sums)
        for row, total in enumerate(sums[0]):
            for chain in sums[1:]:
                builder.store(builder.fadd(builder.load(total), builder.load(chain[row])), total)
        # Last: added to each term in turn, a large number would take the small ones' digits.
        with builder.if_then(accumulate):
            for target, total in zip(targets, sums[0], strict=True):
                builder.store(builder.fadd(self._load(builder, target), builder.load(total)), total)
        for target, total in zip(targets, sums[0], strict=True):
            pointer = builder.bitcast(target, self.vector.as_pointer())
            builder.store(builder.load(total), pointer).align = 4
        return context.get_dummy_value()

    def _zeros(self, builder: Any) -> list[list[Any]]:
        zero = ir.Constant(self.vector, [0.0] * self.stretch)
        sums = [
            [cgutils.alloca_once(builder, self.vector) for _ in range(self.num_rows)]
            for _ in range(self.chains)
        ]
        for total in (each for chain in sums for each in chain):
            builder.store(zero, total)
        return sums

    def _add_all(self, builder: Any, factors: tuple[Any, ...], count: Any, sums: list[list[Any]]) -> None:
        size = count.type
        chains = ir.Constant(size, self.chains)
        rounds = builder.udiv(count, chains)
        with cgutils.for_range(builder, rounds) as loop:
            first = builder.mul(loop.index, chains)
            for number, chain in enumerate(sums):
                self._add_term(builder, factors, builder.add(first, ir.Constant(size, number)), chain)
        rest = builder.mul(rounds, chains)
        with cgutils.for_range_slice(builder, rest, count, ir.Constant(size, 1)) as (index, _):
            self._add_term(builder, factors, index, sums[0])

    def _add_term(self, builder: Any, factors: tuple[Any, ...], index: Any, chain: list[Any]) -> None:
        rows, right_start, right_stride = factors
        right = self._load(builder, builder.gep(right_start, [builder.mul(index, right_stride)]))
        multiply_add = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(self.vector, [self.vector] * 3),
            f"llvm.fmuladd.v{self.stretch}f32",
        )
        for row, total in zip(rows, chain, strict=True):
            left = self._spread(builder, builder.load(builder.gep(row, [index])))
            builder.store(builder.call(multiply_add, [left, right, builder.load(total)]), total)

    def _load(self, builder: Any, pointer: Any) -> Any:
        loaded = builder.load(builder.bitcast(pointer, self.vector.as_pointer()))
        loaded.align = 4
        return loaded

    def _spread(self, builder: Any, number: Any) -> Any:
        undefined = ir.Constant(self.vector, ir.Undefined)
        first = builder.insert_element(undefined, number, ir.Constant(_INT32, 0))
        lanes = ir.Constant(ir.VectorType(_INT32, self.stretch), [0] * self.stretch)
        return builder.shuffle_vector(first, undefined, lanes)


def _row(builder: Any, start: Any, stride: Any, row: int) -> Any:
    return builder.gep(start, [builder.mul(stride, ir.Constant(stride.type, row))])


def product_kernel(num_rows: int, *, stretch: int, chains: int) -> Any:
    """A kernel (a, offset, row stride, b, offset, row stride, count, out, offset, row stride,
    accumulate) for out[r, :stretch] = sum over k < count of a[r, k] * b[k, :stretch].

    Offsets and strides are in numbers. With `accumulate` the product is added to what `out`
    holds. `chains` sums run side by side, to hide latency.
    """
    code = _ProductCode(num_rows, stretch, chains)

    # numba reads the parameters off the function, so they are all named.
    @intrinsic
    def product(  # type: ignore[no-untyped-def]
        typing, a, a_offset, a_stride, b, b_offset, b_stride, count, out, out_offset, out_stride, accumulate
    ):
        size = types.intp
        signature = types.void(a, size, size, b, size, size, size, out, size, size, types.boolean)
        return signature, code.generate

    return product


@intrinsic
def float_of_bits(typing, bits):  # type: ignore[no-untyped-def]
    """The float32 with these 32 bits."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], _FLOAT)

    return types.float32(types.int32), generate
