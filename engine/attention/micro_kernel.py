"""A small matrix product in LLVM's terms, for numba to inline.

Compilers do not keep several rows of sums in registers by themselves; here they are one
vector variable each:

    a[0, k]  [ s s s s ... s ]
    a[1, k]  [ s s s s ... s ]  += a[row, k] * b[k, 0..stretch]   for every k
    a[2, k]  [ s s s s ... s ]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_FLOAT = ir.FloatType()
_INT32 = ir.IntType(32)
_BYTES = ir.IntType(8).as_pointer()

_FLOAT_BYTES = 4
#: What a processor reads from memory at once.
_LINE_BYTES = 64
#: `llvm.prefetch`: into the second-level cache. The first is small, and it lets few reads be under way.
_READ, _SECOND_LEVEL, _DATA = 0, 2, 1


class _Factors(NamedTuple):
    """Where both factors start, b's row stride, and the address of what is read after them."""

    rows: list[Any]
    right: Any
    right_stride: Any
    ahead: Any | None


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
        ahead = args[11] if len(args) > 11 else None
        self._add_all(builder, _Factors(rows, start(3), args[5], ahead), count, sums)
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

    def _add_all(self, builder: Any, factors: _Factors, count: Any, sums: list[list[Any]]) -> None:
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

    def _add_term(self, builder: Any, factors: _Factors, index: Any, chain: list[Any]) -> None:
        offset = builder.mul(index, factors.right_stride)
        if factors.ahead is not None:
            self._fetch(builder, factors.ahead, offset)
        right = self._load(builder, builder.gep(factors.right, [offset]))
        multiply_add = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(self.vector, [self.vector] * 3),
            f"llvm.fmuladd.v{self.stretch}f32",
        )
        for row, total in zip(factors.rows, chain, strict=True):
            left = self._spread(builder, builder.load(builder.gep(row, [index])))
            builder.store(builder.call(multiply_add, [left, right, builder.load(total)]), total)

    def _fetch(self, builder: Any, address: Any, offset: Any) -> None:
        """Ask for as many numbers as a row of b has, `offset` numbers after an address."""
        size = offset.type
        start = builder.add(address, builder.mul(offset, ir.Constant(size, _FLOAT_BYTES)))
        how = [ir.Constant(_INT32, each) for each in (_READ, _SECOND_LEVEL, _DATA)]
        signature = ir.FunctionType(ir.VoidType(), [_BYTES, _INT32, _INT32, _INT32])
        prefetch = cgutils.get_or_insert_function(builder.module, signature, "llvm.prefetch.p0i8")
        for line in range(0, self.stretch * _FLOAT_BYTES, _LINE_BYTES):
            pointer = builder.inttoptr(builder.add(start, ir.Constant(size, line)), _BYTES)
            builder.call(prefetch, [pointer, *how])

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


def product_kernel_ahead(num_rows: int, *, stretch: int, chains: int) -> Any:
    """The same with one parameter more, the address of the b of a later call.

    Row by row, as b is read, the later one is asked for. A processor guesses what is read next only
    inside a page of 4 KiB, and here is told.
    """
    code = _ProductCode(num_rows, stretch, chains)

    @intrinsic
    def product(  # type: ignore[no-untyped-def]
        typing,
        a,
        a_offset,
        a_stride,
        b,
        b_offset,
        b_stride,
        count,
        out,
        out_offset,
        out_stride,
        accumulate,
        ahead,
    ):
        size = types.intp
        signature = types.void(a, size, size, b, size, size, size, out, size, size, types.boolean, size)
        return signature, code.generate

    return product


@intrinsic
def address_of(typing, array, offset):  # type: ignore[no-untyped-def]
    """The address of the number at `offset` of an array; it need not exist if it is only asked for ahead."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.ptrtoint(builder.gep(data, [args[1]]), args[1].type)

    return types.intp(array, types.intp), generate


@intrinsic
def float_of_bits(typing, bits):  # type: ignore[no-untyped-def]
    """The float32 with these 32 bits."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], _FLOAT)

    return types.float32(types.int32), generate
