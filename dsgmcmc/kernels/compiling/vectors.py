"""Vectors of float32 and float64 for generated kernels: loads, stores, arithmetic, transposes.

Compilers vectorise scalar source, but they do not know that a row begins on a cache line, and they
do not sum four dot products with shared shuffles. Kernels over rows of factors therefore use
explicit vectors, of 4 elements or more. The compiler splits vectors that are wider than the
processor's registers.

This module imports Numba, like `dsgmcmc.kernels.compiling.compiler`, so only generated modules
import it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.base import BaseContext as CodeContext
from numba.core.datamodel.manager import DataModelManager
from numba.core.typing.context import BaseContext as TypingContext
from numba.core.typing.templates import Signature
from numba.extending import intrinsic, models, register_model

#: A number that is known when the kernel is compiled.
Literal: TypeAlias = types.IntegerLiteral
#: The arguments of an instruction in LLVM's code.
Values: TypeAlias = Sequence[ir.Value]
#: What an instruction is for Numba: the types of its result and its arguments, and its code.
Instruction: TypeAlias = tuple[
    Signature, Callable[[CodeContext, ir.IRBuilder, Signature, Values], ir.Value | None]
]

#: Fast-math flags, which `dsgmcmc.kernels.compiling.compiler.FAST` explains.
FAST = ("contract", "reassoc", "nsz")

_FLOATS = {types.float32: ir.FloatType(), types.float64: ir.DoubleType()}
_BYTES: dict[types.Type, int] = {types.float32: 4, types.float64: 8}
_BIT = ir.IntType(1)
_INDEX = ir.IntType(32)


class Vector(types.Type):
    """Numba type of a vector of `width` float32 or float64."""

    def __init__(self, width: int, dtype: types.Type = types.float32) -> None:
        self.width = width
        self.dtype = dtype
        super().__init__(name=f"{dtype}x{width}")

    @property
    def llvm(self) -> ir.VectorType:
        """LLVM's type of the vector."""
        return ir.VectorType(_FLOATS[self.dtype], self.width)

    @property
    def bytes(self) -> int:
        """Size of an element in bytes: loads and stores have no larger alignment."""
        return _BYTES[self.dtype]

    def full(self, x: float) -> ir.Constant:
        """Constant vector of equal elements."""
        return ir.Constant(self.llvm, [x] * self.width)


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: DataModelManager, vector: Vector) -> None:
        super().__init__(manager, vector, vector.llvm)  # type: ignore[no-untyped-call]


@intrinsic
def pointer(typing: TypingContext, address: types.Integer) -> Instruction:
    """Convert an address, int64, to a pointer, from which ``carray`` makes an array."""

    def lower(
        context: CodeContext, builder: ir.IRBuilder, signature: Signature, values: Values
    ) -> ir.Value:
        return builder.inttoptr(values[0], cgutils.voidptr_t)

    return types.voidptr(address), lower


# ---------------------------------------------------------------------- loads and stores


@intrinsic(prefer_literal=True)
def load(
    typing: TypingContext, array: types.Array, start: types.Integer, at: Literal, width: Literal
) -> Instruction:
    """Load `width` elements of a flat array, from element `start` + `at` on; both are literals."""
    vector = Vector(width.literal_value, array.dtype)

    def lower(
        context: CodeContext, builder: ir.IRBuilder, signature: Signature, values: Values
    ) -> ir.Value:
        address = element(context, builder, array, values[0], values[1], at.literal_value)
        return load_vector(builder, address, vector)

    return vector(array, start, at, width), lower


@intrinsic(prefer_literal=True)
def store(
    typing: TypingContext, array: types.Array, start: types.Integer, at: Literal, vector: Vector
) -> Instruction:
    """Store a vector in a flat array, from element `start` + `at` on; `at` is a literal."""

    def lower(
        context: CodeContext, builder: ir.IRBuilder, signature: Signature, values: Values
    ) -> ir.Value:
        address = element(context, builder, array, values[0], values[1], at.literal_value)
        store_vector(builder, values[3], address, vector)
        return context.get_dummy_value()

    return types.none(array, start, at, vector), lower


@intrinsic(prefer_literal=True)
def load_first(
    typing: TypingContext,
    array: types.Array,
    start: types.Integer,
    count: types.Integer,
    width: Literal,
) -> Instruction:
    """Load `count` elements of a flat array, from element `start` on, then zeros to `width`."""
    vector = Vector(width.literal_value, array.dtype)

    def lower(
        context: CodeContext, builder: ir.IRBuilder, signature: Signature, values: Values
    ) -> ir.Value:
        address = element(context, builder, array, values[0], values[1], 0)
        return load_vector(builder, address, vector, first_elements(builder, values[2], vector))

    return vector(array, start, count, width), lower


@intrinsic
def store_first(
    typing: TypingContext,
    array: types.Array,
    start: types.Integer,
    count: types.Integer,
    vector: Vector,
) -> Instruction:
    """Store the first `count` elements of a vector in a flat array, from element `start` on."""

    def lower(
        context: CodeContext, builder: ir.IRBuilder, signature: Signature, values: Values
    ) -> ir.Value:
        address = element(context, builder, array, values[0], values[1], 0)
        chosen = first_elements(builder, values[2], vector)
        store_vector(builder, values[3], address, vector, chosen)
        return context.get_dummy_value()

    return types.none(array, start, count, vector), lower


# ---------------------------------------------------------------------- arithmetic


@intrinsic(prefer_literal=True)
def spread(typing: TypingContext, x: types.Number, width: Literal) -> Instruction:
    """Make a vector of `width` elements equal to `x`: of float64 if `x` is, else of float32."""
    dtype = types.float64 if x == types.float64 else types.float32
    vector = Vector(width.literal_value, dtype)

    def lower(
        context: CodeContext, builder: ir.IRBuilder, signature: Signature, values: Values
    ) -> ir.Value:
        value = context.cast(builder, values[0], x, dtype)
        return spread_value(builder, value, vector.width)

    return vector(x, width), lower


@intrinsic
def four(
    typing: TypingContext, a: types.Number, b: types.Number, c: types.Number, d: types.Number
) -> Instruction:
    """Make a vector of four float32."""

    def lower(
        context: CodeContext, builder: ir.IRBuilder, signature: Signature, values: Values
    ) -> ir.Value:
        vector = ir.Constant(Vector(4).llvm, ir.Undefined)
        for k in range(4):
            vector = builder.insert_element(vector, values[k], _INDEX(k))
        return vector

    return Vector(4)(a, b, c, d), lower


@intrinsic
def plus(typing: TypingContext, a: Vector, b: Vector) -> Instruction:
    """Add two vectors."""
    return a(a, b), lambda context, builder, signature, values: add(builder, *values)


@intrinsic
def times(typing: TypingContext, a: Vector, b: Vector) -> Instruction:
    """Multiply two vectors elementwise."""

    def lower(
        context: CodeContext, builder: ir.IRBuilder, signature: Signature, values: Values
    ) -> ir.Value:
        return builder.fmul(*values, flags=FAST)

    return a(a, b), lower


@intrinsic
def times_plus(typing: TypingContext, a: Vector, b: Vector, c: Vector) -> Instruction:
    """Multiply two vectors elementwise, and add the products to a third vector.

    Products are added as many at a time as the third vector has elements.
    """

    def lower(
        context: CodeContext, builder: ir.IRBuilder, signature: Signature, values: Values
    ) -> ir.Value:
        total = values[2]
        for at in range(0, a.width, c.width):
            factors = (shuffle(builder, x, x, range(at, at + c.width)) for x in values[:2])
            total = add(builder, builder.fmul(*factors, flags=FAST), total)
        return total

    return c(a, b, c), lower


@intrinsic
def minus_times(typing: TypingContext, a: Vector, b: Vector, c: Vector) -> Instruction:
    """Subtract the elementwise product of a and b from c."""

    def lower(
        context: CodeContext, builder: ir.IRBuilder, signature: Signature, values: Values
    ) -> ir.Value:
        product = builder.fmul(values[0], values[1], flags=FAST)
        return builder.fsub(values[2], product, flags=FAST)

    return c(a, b, c), lower


@intrinsic
def inverse_root(typing: TypingContext, a: Vector) -> Instruction:
    """1 / sqrt(a), elementwise and without approximation."""

    def lower(
        context: CodeContext, builder: ir.IRBuilder, signature: Signature, values: Values
    ) -> ir.Value:
        function = _function(builder, f"llvm.sqrt.{_suffix(a)}", a.llvm, [a.llvm])
        return builder.fdiv(a.full(1.0), builder.call(function, values))

    return a(a), lower


@intrinsic
def doubles(typing: TypingContext, a: Vector) -> Instruction:
    """Convert a vector of float32 to float64."""
    vector = Vector(a.width, types.float64)
    return vector(a), lambda context, builder, signature, values: builder.fpext(
        values[0], vector.llvm
    )


@intrinsic
def singles(typing: TypingContext, a: Vector) -> Instruction:
    """Convert a vector of float64 to float32."""
    vector = Vector(a.width)
    return vector(a), lambda context, builder, signature, values: builder.fptrunc(
        values[0], vector.llvm
    )


@intrinsic
def sum_of(typing: TypingContext, a: Vector) -> Instruction:
    """Sum the elements of a vector."""

    def lower(
        context: CodeContext, builder: ir.IRBuilder, signature: Signature, values: Values
    ) -> ir.Value:
        return builder.extract_element(_halved(builder, values[0], 1), _INDEX(0))

    return a.dtype(a), lower


@intrinsic
def transposed(typing: TypingContext, rows: types.UniTuple) -> Instruction:
    """Transpose a tuple of n vectors of n elements, n a power of 2."""

    def lower(
        context: CodeContext, builder: ir.IRBuilder, signature: Signature, values: Values
    ) -> ir.Value:
        lines = cgutils.unpack_tuple(builder, values[0])
        n = len(lines)
        size = n // 2
        while size:
            # exchange the upper right and the lower left block of squares of 2 `size` lines
            left = [e if e // size % 2 == 0 else n + e - size for e in range(n)]
            right = [e + size if e // size % 2 == 0 else n + e for e in range(n)]
            for k in range(n):
                if k // size % 2 == 0:
                    upper = lines[k]
                    lower = lines[k + size]
                    lines[k] = shuffle(builder, upper, lower, left)
                    lines[k + size] = shuffle(builder, upper, lower, right)
            size //= 2
        return context.make_tuple(builder, rows, lines)

    return rows(rows), lower


@intrinsic
def sums_of(typing: TypingContext, a: Vector, b: Vector, c: Vector, d: Vector) -> Instruction:
    """Return the sums of the elements of four vectors as a vector; shuffles are shared."""

    def lower(
        context: CodeContext, builder: ir.IRBuilder, signature: Signature, values: Values
    ) -> ir.Value:
        first = _folded(builder, values[0], values[1], alternate=True)
        second = _folded(builder, values[2], values[3], alternate=True)
        return _halved(builder, _folded(builder, first, second, alternate=False), 4)

    return Vector(4)(a, b, c, d), lower


@intrinsic(prefer_literal=True)
def prefetch(
    typing: TypingContext, array: types.Array, start: types.Integer, length: Literal, line: Literal
) -> Instruction:
    """Prefetch `length` elements of a flat array, from `start` on, for writing.

    A cache line has `line` elements.
    """

    def lower(
        context: CodeContext, builder: ir.IRBuilder, signature: Signature, values: Values
    ) -> ir.Value:
        byte = ir.IntType(8).as_pointer()
        arguments = [byte, _INDEX, _INDEX, _INDEX]
        function = _function(builder, "llvm.prefetch.p0i8", ir.VoidType(), arguments)
        write, highest_locality, data = _INDEX(1), _INDEX(3), _INDEX(1)
        for at in range(0, length.literal_value, line.literal_value):
            address = element(context, builder, array, values[0], values[1], at)
            pointer_to_byte = builder.bitcast(address, byte)
            builder.call(function, [pointer_to_byte, write, highest_locality, data])
        return context.get_dummy_value()

    return types.none(array, start, length, line), lower


# ---------------------------------------------------------------------- instructions


def element(
    context: CodeContext,
    builder: ir.IRBuilder,
    array: types.Array,
    value: ir.Value,
    start: ir.Value,
    at: int,
) -> ir.Value:
    """Return a pointer to element `at` from element `start` of an array on."""
    index = builder.add(start, start.type(at))
    return builder.gep(
        context.make_array(array)(context, builder, value).data, [index], inbounds=True
    )


def load_vector(
    builder: ir.IRBuilder, address: ir.Value, vector: Vector, chosen: ir.Value | None = None
) -> ir.Value:
    """Load a vector from an address: all elements, or those `chosen` by a mask, else zeros."""
    address = builder.bitcast(address, vector.llvm.as_pointer())
    if chosen is None:
        loaded = builder.load(address)
        loaded.align = vector.bytes
        return loaded
    arguments = [address, _INDEX(vector.bytes), chosen, vector.full(0.0)]
    name = f"llvm.masked.load.{_suffix(vector)}.p0{_suffix(vector)}"
    function = _function(builder, name, vector.llvm, [argument.type for argument in arguments])
    return builder.call(function, arguments)


def store_vector(
    builder: ir.IRBuilder,
    value: ir.Value,
    address: ir.Value,
    vector: Vector,
    chosen: ir.Value | None = None,
) -> None:
    """Store all elements of a vector, or those `chosen` by a mask, at an address."""
    address = builder.bitcast(address, vector.llvm.as_pointer())
    if chosen is None:
        builder.store(value, address).align = vector.bytes
        return
    arguments = [value, address, _INDEX(vector.bytes), chosen]
    name = f"llvm.masked.store.{_suffix(vector)}.p0{_suffix(vector)}"
    function = _function(builder, name, ir.VoidType(), [argument.type for argument in arguments])
    builder.call(function, arguments)


def first_elements(builder: ir.IRBuilder, count: ir.Value | int, vector: Vector) -> ir.Value:
    """Mask of the first `count` elements of a vector; constant if `count` is an int."""
    if isinstance(count, int):
        bits = [int(e < count) for e in range(vector.width)]
        return ir.Constant(ir.VectorType(_BIT, vector.width), bits)
    indices = ir.Constant(ir.VectorType(count.type, vector.width), list(range(vector.width)))
    return builder.icmp_signed("<", indices, spread_value(builder, count, vector.width))


def spread_value(builder: ir.IRBuilder, value: ir.Value, width: int) -> ir.Value:
    """Make a vector of `width` elements equal to a number."""
    undefined = ir.Constant(ir.VectorType(value.type, width), ir.Undefined)
    one = builder.insert_element(undefined, value, _INDEX(0))
    return shuffle(builder, one, one, [0] * width)


def add(builder: ir.IRBuilder, a: ir.Value, b: ir.Value) -> ir.Value:
    """Add two vectors."""
    return builder.fadd(a, b, flags=FAST)


def _function(
    builder: ir.IRBuilder, name: str, result: ir.Type, arguments: list[ir.Type]
) -> ir.Function:
    """LLVM's function of this name."""
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, arguments), name)


def _suffix(vector: Vector) -> str:
    """Name of a vector's type in the names of LLVM's functions."""
    return f"v{vector.width}f{8 * vector.bytes}"


def shuffle(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, chosen: Sequence[int]) -> ir.Value:
    """Select elements of the concatenation of a and b."""
    return builder.shuffle_vector(
        a, b, ir.Constant(ir.VectorType(_INDEX, len(chosen)), list(chosen))
    )


def _folded(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, alternate: bool) -> ir.Value:
    """Add, within each group of four elements, the last two of a and of b to the first two.

    With `alternate` the results of a and b alternate; otherwise the pair of a precedes the pair of
    b. Folding four vectors first alternately and then in pairs leaves one element of each vector in
    every group of four.
    """
    width = a.type.count
    fours = range(0, width, 4)
    if alternate:
        first = [begin + four + k for four in fours for k in (0, 1) for begin in (0, width)]
    else:
        first = [begin + four + k for four in fours for begin in (0, width) for k in (0, 1)]
    last = [k + 2 for k in first]
    return add(builder, shuffle(builder, a, b, first), shuffle(builder, a, b, last))


def _halved(builder: ir.IRBuilder, a: ir.Value, width: int) -> ir.Value:
    """Add the two halves of a vector until it has `width` elements."""
    while (count := a.type.count) > width:
        lower = shuffle(builder, a, a, range(count // 2))
        upper = shuffle(builder, a, a, range(count // 2, count))
        a = add(builder, lower, upper)
    return a
