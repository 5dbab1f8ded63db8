"""Vectors of float32 for generated kernels: loads, stores, products, and sums of four at a time.

Compilers vectorise scalar source, but they do not know that a row begins on a cache line, and they
do not sum four dot products with shared shuffles. Kernels over rows of factors therefore use
explicit vectors, of 4 elements or more. The compiler splits vectors that are wider than the
processor's registers.

This module imports Numba, like `dsgmcmc.kernels.compiler`, so only generated modules import it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

#: Fast-math flags, which `dsgmcmc.kernels.compiler.FAST` explains.
FAST = ("contract", "reassoc", "nsz")

_FLOAT = ir.FloatType()
_INDEX = ir.IntType(32)


class Vector(types.Type):
    """Numba type of a vector of `width` float32."""

    def __init__(self, width: int) -> None:
        self.width = width
        super().__init__(name=f"float32x{width}")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, vector: Vector) -> None:
        super().__init__(manager, vector, ir.VectorType(_FLOAT, vector.width))  # type: ignore[no-untyped-call]


@intrinsic
def pointer(typing: Any, address: Any) -> Any:
    """Convert an address, int64, to a pointer, from which ``carray`` makes an array."""

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), lower


def _address(context: Any, builder: Any, array: Any, value: Any, start: Any, at: int) -> Any:
    """Return a pointer to element `at` from element `start` of an array on."""
    index = builder.add(start, start.type(at))
    return builder.gep(
        context.make_array(array)(context, builder, value).data, [index], inbounds=True
    )


@intrinsic(prefer_literal=True)
def load(typing: Any, array: Any, start: Any, at: Any, width: Any) -> Any:
    """Load `width` elements of a flat array, from element `start` + `at` on; both are literals."""
    vector = Vector(width.literal_value)

    def lower(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        address = _address(context, builder, array, values[0], values[1], at.literal_value)
        pointer_type = ir.VectorType(_FLOAT, vector.width).as_pointer()
        loaded = builder.load(builder.bitcast(address, pointer_type))
        loaded.align = 4
        return loaded

    return vector(array, start, at, width), lower


@intrinsic(prefer_literal=True)
def store(typing: Any, array: Any, start: Any, at: Any, vector: Any) -> Any:
    """Store a vector in a flat array, from element `start` + `at` on; `at` is a literal."""

    def lower(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        address = _address(context, builder, array, values[0], values[1], at.literal_value)
        stored = builder.store(values[3], builder.bitcast(address, values[3].type.as_pointer()))
        stored.align = 4
        return context.get_dummy_value()

    return types.none(array, start, at, vector), lower


@intrinsic(prefer_literal=True)
def spread(typing: Any, x: Any, width: Any) -> Any:
    """Make a vector of `width` elements equal to the float32 `x`."""
    count = width.literal_value

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value = context.cast(builder, arguments[0], signature.args[0], types.float32)
        one = builder.insert_element(
            ir.Constant(ir.VectorType(_FLOAT, count), ir.Undefined), value, _INDEX(0)
        )
        return _shuffle(builder, one, one, [0] * count)

    return Vector(count)(x, width), lower


@intrinsic
def four(typing: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """Make a vector of four float32."""

    def lower(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        vector = ir.Constant(ir.VectorType(_FLOAT, 4), ir.Undefined)
        for k in range(4):
            vector = builder.insert_element(vector, values[k], _INDEX(k))
        return vector

    return Vector(4)(a, b, c, d), lower


@intrinsic
def plus(typing: Any, a: Any, b: Any) -> Any:
    """Add two vectors."""
    return a(a, b), lambda context, builder, signature, values: _add(builder, *values)


@intrinsic
def times_plus(typing: Any, a: Any, b: Any, c: Any) -> Any:
    """Multiply two vectors elementwise, and add the products to a third vector.

    Products are added as many at a time as the third vector has elements.
    """

    def lower(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        total = values[2]
        for at in range(0, a.width, c.width):
            factors = (_shuffle(builder, x, x, range(at, at + c.width)) for x in values[:2])
            total = _add(builder, builder.fmul(*factors, flags=FAST), total)
        return total

    return c(a, b, c), lower


@intrinsic
def sums_of(typing: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """Return the sums of the elements of four vectors as a vector; shuffles are shared."""

    def lower(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        first = _folded(builder, values[0], values[1], alternate=True)
        second = _folded(builder, values[2], values[3], alternate=True)
        return _halved(builder, _folded(builder, first, second, alternate=False), 4)

    return Vector(4)(a, b, c, d), lower


@intrinsic(prefer_literal=True)
def prefetch(typing: Any, array: Any, start: Any, length: Any, line: Any) -> Any:
    """Prefetch `length` elements of a flat array, from `start` on, for writing.

    A cache line has `line` elements.
    """

    def lower(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        function = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
            builder.module,
            ir.FunctionType(ir.VoidType(), [byte, _INDEX, _INDEX, _INDEX]),
            "llvm.prefetch.p0i8",
        )
        write, highest_locality, data = _INDEX(1), _INDEX(3), _INDEX(1)
        for at in range(0, length.literal_value, line.literal_value):
            address = _address(context, builder, array, values[0], values[1], at)
            pointer_to_byte = builder.bitcast(address, byte)
            builder.call(function, [pointer_to_byte, write, highest_locality, data])
        return context.get_dummy_value()

    return types.none(array, start, length, line), lower


# ---------------------------------------------------------------------- instructions


def _add(builder: Any, a: Any, b: Any) -> Any:
    return builder.fadd(a, b, flags=FAST)


def _shuffle(builder: Any, a: Any, b: Any, chosen: Sequence[int]) -> Any:
    """Select elements of the concatenation of a and b."""
    return builder.shuffle_vector(
        a, b, ir.Constant(ir.VectorType(_INDEX, len(chosen)), list(chosen))
    )


def _folded(builder: Any, a: Any, b: Any, alternate: bool) -> Any:
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
    return _add(builder, _shuffle(builder, a, b, first), _shuffle(builder, a, b, last))


def _halved(builder: Any, a: Any, width: int) -> Any:
    """Add the two halves of a vector until it has `width` elements."""
    while (count := a.type.count) > width:
        lower = _shuffle(builder, a, a, range(count // 2))
        upper = _shuffle(builder, a, a, range(count // 2, count))
        a = _add(builder, lower, upper)
    return a
