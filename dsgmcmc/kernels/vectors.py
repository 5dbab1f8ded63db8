"""Vectors of float32 for generated kernels: loads, stores, products, and sums of four vectors at a
time.

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

_FLOAT, _INDEX = ir.FloatType(), ir.IntType(32)


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


def _place(context: Any, builder: Any, array: Any, value: Any, start: Any, at: int) -> Any:
    """Return a pointer to element `at` from element `start` of an array on."""
    index = builder.add(start, start.type(at))
    return builder.gep(
        context.make_array(array)(context, builder, value).data, [index], inbounds=True
    )


@intrinsic(prefer_literal=True)
def load(typing: Any, array: Any, start: Any, at: Any, width: Any) -> Any:
    """Load `width` elements of a flat array, from element `start` + `at` on; both are literals."""
    vector = Vector(width.literal_value)

    def lower(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        place = _place(context, builder, array, given[0], given[1], at.literal_value)
        loaded = builder.load(
            builder.bitcast(place, ir.VectorType(_FLOAT, vector.width).as_pointer())
        )
        loaded.align = 4
        return loaded

    return vector(array, start, at, width), lower


@intrinsic(prefer_literal=True)
def store(typing: Any, array: Any, start: Any, at: Any, vector: Any) -> Any:
    """Store a vector in a flat array, from element `start` + `at` on; `at` is a literal."""

    def lower(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        place = _place(context, builder, array, given[0], given[1], at.literal_value)
        builder.store(given[3], builder.bitcast(place, given[3].type.as_pointer())).align = 4
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

    def lower(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        vector = ir.Constant(ir.VectorType(_FLOAT, 4), ir.Undefined)
        for k in range(4):
            vector = builder.insert_element(vector, given[k], _INDEX(k))
        return vector

    return Vector(4)(a, b, c, d), lower


@intrinsic
def plus(typing: Any, a: Any, b: Any) -> Any:
    """Add two vectors."""
    return a(a, b), lambda context, builder, signature, given: _add(builder, *given)


@intrinsic
def times_plus(typing: Any, a: Any, b: Any, c: Any) -> Any:
    """Multiply two vectors elementwise, and add the products to a third, as many at a time as it
    has elements.
    """

    def lower(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        total = given[2]
        for at in range(0, a.width, c.width):
            factors = (_shuffle(builder, x, x, range(at, at + c.width)) for x in given[:2])
            total = _add(builder, builder.fmul(*factors, flags=FAST), total)
        return total

    return c(a, b, c), lower


@intrinsic
def sums_of(typing: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """Sum the elements of each of four vectors, with shared shuffles; return the sums as a vector."""

    def lower(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        pairs = [_folded(builder, given[k], given[k + 1], turns=True) for k in (0, 2)]
        return _halved(builder, _folded(builder, pairs[0], pairs[1], turns=False), 4)

    return Vector(4)(a, b, c, d), lower


@intrinsic(prefer_literal=True)
def prefetch(typing: Any, array: Any, start: Any, length: Any, line: Any) -> Any:
    """Prefetch `length` elements of a flat array, from `start` on, for writing; a cache line has
    `line` elements.
    """

    def lower(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, _INDEX, _INDEX, _INDEX])
        name = "llvm.prefetch.p0i8"
        function = cgutils.get_or_insert_function(builder.module, kind, name)  # type: ignore[no-untyped-call]
        for at in range(0, length.literal_value, line.literal_value):
            place = _place(context, builder, array, given[0], given[1], at)
            builder.call(function, [builder.bitcast(place, byte), _INDEX(1), _INDEX(3), _INDEX(1)])
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


def _folded(builder: Any, a: Any, b: Any, turns: bool) -> Any:
    """Add, within each group of four elements, the last two of a and of b to the first two.

    With `turns` the results of a and b alternate; otherwise the pair of a precedes the pair of b.
    Folding four vectors first in turns and then in pairs leaves one element of each vector in every
    group of four.
    """
    width = a.type.count
    fours = range(0, width, 4)
    if turns:
        first = [side + four + k for four in fours for k in (0, 1) for side in (0, width)]
    else:
        first = [side + four + k for four in fours for side in (0, width) for k in (0, 1)]
    last = [k + 2 for k in first]
    return _add(builder, _shuffle(builder, a, b, first), _shuffle(builder, a, b, last))


def _halved(builder: Any, a: Any, width: int) -> Any:
    """Add the two halves of a vector until it has `width` elements."""
    while (count := a.type.count) > width:
        lower, upper = range(count // 2), range(count // 2, count)
        a = _add(builder, _shuffle(builder, a, a, lower), _shuffle(builder, a, a, upper))
    return a
