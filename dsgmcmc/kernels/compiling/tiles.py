"""Tiles of a symmetric matrix, whose sums stay in registers: outer products, and packed rows.

A tile has a few rows, each of one to three vectors of columns. In a kernel it is a tuple of vectors
(`dsgmcmc.kernels.compiling.vectors.Vector`), row by row. The lower triangle of the matrix is stored
row by row: row a begins at element a (a + 1) / 2.

This module imports Numba, like `dsgmcmc.kernels.compiling.compiler`, so only generated modules
import it.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.base import BaseContext as CodeContext
from numba.core.typing.context import BaseContext as TypingContext
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from dsgmcmc.kernels.compiling.vectors import (
    FAST,
    Instruction,
    Literal,
    Values,
    Vector,
    add,
    element,
    first_elements,
    load_vector,
    spread_value,
    store_vector,
)

_INDEX = ir.IntType(32)


@intrinsic(prefer_literal=True)
def empty_tile(
    typing: TypingContext, height: Literal, first: Literal, second: Literal, third: Literal
) -> Instruction:
    """Make a tile of zeros of `height` rows, with vectors of these widths; 0 stands for none."""
    widths = [width.literal_value for width in (first, second, third)]
    row = [Vector(width) for width in widths if width > 0]
    tile = types.Tuple(row * height.literal_value)

    def lower(
        context: CodeContext, builder: ir.IRBuilder, signature: Signature, values: Values
    ) -> ir.Value:
        return context.make_tuple(builder, tile, [vector.full(0.0) for vector in tile])

    return tile(height, first, second, third), lower


@intrinsic(prefer_literal=True)
def plus_outer(
    typing: TypingContext,
    tile: types.Tuple,
    height: Literal,
    array: types.Array,
    rows: types.Integer,
    columns: types.Integer,
) -> Instruction:
    """Add the outer product of two parts of a flat array to a tile of `height` rows.

    The first factor begins at element `rows` of the array, the second at element `columns`.
    """
    vectors = _row_of(tile, height)

    def lower(
        context: CodeContext, builder: ir.IRBuilder, signature: Signature, values: Values
    ) -> ir.Value:
        sums = cgutils.unpack_tuple(builder, values[0])
        wide = []
        at = 0
        for vector in vectors:
            address = element(context, builder, array, values[2], values[4], at)
            wide.append(load_vector(builder, address, vector))
            at += vector.width
        total: list[ir.Value] = []
        for i in range(height.literal_value):
            x = builder.load(element(context, builder, array, values[2], values[3], i))
            for vector, factor in zip(vectors, wide, strict=True):
                spread = spread_value(builder, x, vector.width)
                product = builder.fmul(spread, factor, flags=FAST)
                total.append(add(builder, product, sums[len(total)]))
        return context.make_tuple(builder, tile, total)

    return tile(tile, height, array, rows, columns), lower


@intrinsic(prefer_literal=True)
def add_to_packed(
    typing: TypingContext,
    tile: types.Tuple,
    height: Literal,
    out: types.Array,
    start: types.Integer,
    row: types.Integer,
    column: types.Integer,
    end: types.Integer,
) -> Instruction:
    """Add a tile to the packed triangle that begins at element `start` of a flat array.

    The tile begins in row `row` and column `column`. Its last vectors have `end` elements in its
    first row, and one more in every further row, up to their width. All old sums are loaded before
    new ones are stored: rows follow each other closely, and processors wait for a store that a load
    overlaps.
    """
    vectors = _row_of(tile, height)

    def lower(
        context: CodeContext, builder: ir.IRBuilder, signature: Signature, values: Values
    ) -> ir.Value:
        sums = cgutils.unpack_tuple(builder, values[0])
        places = []
        for i in range(height.literal_value):
            a = builder.add(values[4], values[4].type(i))
            product = builder.mul(a, builder.add(a, a.type(1)))
            first = builder.add(values[3], builder.lshr(product, a.type(1)))
            first = builder.add(first, values[5])
            at = 0
            for vector in vectors:
                address = element(context, builder, out, values[2], first, at)
                places.append((address, vector, None))
                at += vector.width
            if isinstance(end, types.IntegerLiteral):
                count: ir.Value | int = end.literal_value + i
                full = count >= vector.width
            else:
                count = builder.add(builder.trunc(values[6], _INDEX), _INDEX(i))
                full = False
            if not full:
                places[-1] = (address, vector, first_elements(builder, count, vector))
        total = []
        for (address, vector, chosen), value in zip(places, sums, strict=True):
            total.append(add(builder, load_vector(builder, address, vector, chosen), value))
        for (address, vector, chosen), value in zip(places, total, strict=True):
            store_vector(builder, value, address, vector, chosen)
        return context.get_dummy_value()

    return types.none(tile, height, out, start, row, column, end), lower


def _row_of(tile: types.Tuple, height: Literal) -> list[Vector]:
    """Types of the vectors of a row of a tile."""
    return list(tile)[: len(tile) // height.literal_value]
