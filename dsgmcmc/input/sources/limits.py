"""Limits of the cells of a matrix: by cell, by row, by column, or one number for all.

A number within its limit, such as one below a limit of detection, is known only by the limit, and
a number beyond it is exact. Bounds are then those of `dsgmcmc.input.bounds`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.input.sources.numbers import (
    Numbers,
    are_codes,
    missing_words,
    stand_in,
    with_open_sides,
)
from dsgmcmc.input.sources.tables import is_number
from dsgmcmc.ratings.reading import Reading
from dsgmcmc.settings import named
from dsgmcmc.tables.frames import texts_of
from dsgmcmc.tables.usual import Columns, shortened
from dsgmcmc.types import Array, Float64, Mask

#: Roles of limits.
SIDES = ("lower", "upper")
#: Where AnnData has what may have limits.
AXES = ("layers", "obs", "var")
#: Reads the numbers of what has a name: (n, m), or (n, 1) of rows, or (1, m) of columns.
Reader = Callable[[], Any]


class Limits(NamedTuple):
    """Limits of the cells of a matrix (n, m).

    Attributes
    ----------
    lower, upper : (n, m) float64
        NaN where a cell has no limit on this side. What rows or columns share is stored once.
    names : dict of str to str
        What has the limits, by side.
    by_cell : bool
        Whether both sides have a limit of each cell: the lower one is then never above the upper.
    """

    lower: Float64
    upper: Float64
    names: Mapping[str, str]
    by_cell: bool

    @property
    def exist(self) -> Mask:
        """Mask (n, m) of the cells with a limit."""
        mask: Mask = ~(np.isnan(self.lower) & np.isnan(self.upper))
        return mask

    def describe(self) -> str:
        """Return the names of the limits."""
        named_sides = [f"{side} limits are {name}" for side, name in self.names.items()]
        return ", ".join(named_sides)


class RatedCells(NamedTuple):
    """Cells of a matrix that are ratings.

    Attributes
    ----------
    row, col : (q,) int64
    values : (q,) float64
    bounds : (2, q) float64 or None
        Lower and upper bounds of cells that are known only by bounds, infinite on an open side; NaN
        in others. None if no cell can have any.
    """

    row: Array
    col: Array
    values: Float64
    bounds: Float64 | None = None


def limits_in(columns: Columns) -> dict[str, str]:
    """Return the names of limits, or numbers, among columns by role."""
    return {side: str(columns[side]) for side in SIDES if side in columns}


def refuse_roles(where: object, columns: Columns) -> None:
    """Raise InputError if columns by role have other roles than those of limits."""
    found = [role for role in columns if role not in SIDES]
    if found:
        raise InputError(
            f"{where} is a matrix: leave out {named('columns')} {found[0]}={columns[found[0]]};"
            " lower=NAME and upper=NAME may name limits"
        )


def limits_of_annotated(columns: Columns) -> dict[str, str]:
    """Return the limits among columns by role that are whole names in AnnData, or numbers."""
    return {
        side: name
        for side, name in limits_in(columns).items()
        if is_number(name) or name.partition("/")[0] in AXES
    }


def find_limits(
    where: object, columns: Columns, shape: tuple[int, int], known: Mapping[str, Reader]
) -> Limits | None:
    """Return the limits that users name among `columns` by role; None if they name none.

    `known` has what may have limits, by names such as ``var/lod``, of which ``lod`` will do. Raises
    InputError if a name is not known, may mean two things, or has no numbers.
    """
    found = {}
    names = {}
    for side, text in limits_in(columns).items():
        name = _resolve(where, side, text, list(known))
        if name in known:
            found[side] = _as_limits(f"{where}, {name}", known[name]())
        else:
            found[side] = np.array(float(name))
        names[side] = name
    if not found:
        return None
    open_side = np.array(np.nan)
    sides = [np.broadcast_to(found.get(side, open_side), shape) for side in SIDES]
    by_cell = all(side in found and found[side].shape == shape for side in SIDES)
    return Limits(sides[0], sides[1], names, by_cell)


def annotated_names(
    shape: tuple[int, int],
    *,
    layers: Mapping[str, Reader],
    obs: Mapping[str, Reader],
    var: Mapping[str, Reader],
) -> dict[str, Reader]:
    """Return what may have limits in AnnData of a shape, by names such as ``var/lod``.

    Layers, and columns of obs and var, are given by their own names.
    """
    known = {f"layers/{name}": read for name, read in layers.items()}
    for axis, columns, along in (("var", var, (1, shape[1])), ("obs", obs, (shape[0], 1))):
        for name, read in columns.items():
            known[f"{axis}/{name}"] = partial(_along, read, along)
    return known


def _along(read: Reader, shape: tuple[int, int]) -> Array:
    """Return a column that was read, along one axis of a matrix."""
    return np.reshape(read(), shape)


def without_limits(layers: Sequence[str], columns: Columns) -> list[str]:
    """Return the layers that may have the ratings: those that no limit among columns names."""
    limits = {name.removeprefix("layers/") for name in limits_in(columns).values()}
    return [layer for layer in layers if layer not in limits]


def _resolve(where: object, side: str, text: str, known: Sequence[str]) -> str:
    """Return the whole name that a text stands for; the text itself if it is a number."""
    matching = [name for name in known if text in (name, name.partition("/")[2])]
    option = f"{named('columns')} {side}="
    if is_number(text):
        if not matching:
            return text
        sign = text[: text[0] in "+-"]
        matching.append(f"{sign}0{text.removeprefix(sign)} (the number)")
    elif text in matching:
        return text
    if not matching:
        raise InputError(
            f"{where} has no {text!r}, which {option}{text} names: it has"
            f" {shortened(known) or 'no such names'}; a number is one limit for all cells"
        )
    if len(matching) > 1:
        choices = " or ".join(option + name for name in matching)
        raise InputError(f"{where}: {option}{text} may mean {len(matching)} things: give {choices}")
    return matching[0]


def _as_limits(what: str, values: Any) -> Float64:
    """Return numbers as limits: infinite ones are none."""
    if hasattr(values, "tocoo"):
        raise InputError(
            f"{what} is a sparse matrix: limits need an array, with NaN where there is none"
        )
    if values.dtype.kind not in "iuf":
        raise InputError(f"{what} has values of type {values.dtype}, not the numbers of limits")
    limits = values.astype(np.float64)
    return np.where(np.isfinite(limits), limits, np.nan)


# ------------------------------------------------------------------------------------------- cells


def bounded_cells(where: object, cells: RatedCells, limits: Limits, choice: Reading) -> RatedCells:
    """Return the cells that are ratings, given limits: some are known only by them.

    Numbers are compared in float32, as ratings are stored. Raises InputError if cells have no
    number, but a limit, and the user has not said what that means; or if a number is outside of two
    limits between which it must be.
    """
    lower = limits.lower[cells.row, cells.col]
    upper = limits.upper[cells.row, cells.col]
    has_lower = ~np.isnan(lower)
    has_upper = ~np.isnan(upper)
    is_empty = np.isnan(cells.values)
    is_code = are_codes(cells.values, choice.missing)
    n_empty = int(np.count_nonzero(is_empty & (has_lower | has_upper)))
    if n_empty and choice.unstored is None:
        raise InputError(
            f"{where}: {n_empty:,} cells have a limit, but no number: are they known to be within"
            f" their limits, or not rated? Give {named('unstored')} limit or {named('unstored')}"
            " missing"
        )
    values = cells.values.astype(np.float32)
    below = has_upper & ~(values > upper.astype(np.float32))
    above = has_lower & ~(values < lower.astype(np.float32))
    may_be_bounded = ~is_code
    if choice.unstored != "limit":
        may_be_bounded &= ~is_empty
    below &= may_be_bounded
    above &= may_be_bounded
    is_crossed = lower > upper
    _refuse_wrong_order(where, is_crossed & (limits.by_cell | (below & above)), limits)
    is_between = has_lower & has_upper & ~is_crossed & ~is_empty & ~is_code
    _refuse_outside(where, is_between & ~(below & above), limits)
    bounds = np.stack(
        with_open_sides(np.where(above, lower, np.nan), np.where(below, upper, np.nan))
    )
    is_bounded = below | above
    known = np.where(is_bounded, stand_in(bounds[0], bounds[1]), cells.values)
    kept = ~np.isnan(known)
    return RatedCells(cells.row[kept], cells.col[kept], known[kept], bounds[:, kept])


def _refuse_wrong_order(where: object, wrong: Mask, limits: Limits) -> None:
    """Raise InputError if lower limits are above the upper ones."""
    if wrong.any():
        raise InputError(
            f"{where}: the lower limit is above the upper one in {np.count_nonzero(wrong):,} cells"
            f" ({limits.describe()}), of which one must be left out (NaN)"
        )


def _refuse_outside(where: object, wrong: Mask, limits: Limits) -> None:
    """Raise InputError if numbers are outside of two limits."""
    if wrong.any():
        raise InputError(
            f"{where}: {np.count_nonzero(wrong):,} cells have a number outside of their limits"
            f" ({limits.describe()}): leave out the limits of cells that are exact (NaN)"
        )


def read_texts(where: object, texts: Array, choice: Reading) -> tuple[Float64, Float64 | None]:
    """Return the numbers in a matrix (n, m) of texts and numbers, and bounds such as ``<0.1``.

    Numbers are NaN where a cell is empty. Bounds, (2, n, m), are as in `RatedCells`. Raises
    InputError if a cell has other text.
    """
    rows = texts_of(texts.ravel()).reshape(texts.shape).tolist()
    width = texts.shape[1]
    numbers = Numbers(missing_words(choice.missing), choice.decimal or "")
    values = numbers.table(rows, width)
    wrong = np.isinf(values)
    if numbers.words:
        wrong |= np.array([[text in numbers.words for text in row] for row in rows], bool)
    if wrong.any():
        row, col = np.argwhere(wrong)[0].tolist()
        raise InputError(
            f"{where}: {np.count_nonzero(wrong):,} cell(s) have no number, such as"
            f" {rows[row][col]!r} in row {row + 1}: correct them, or give {named('missing')}"
            " VALUE,... if they mean not rated"
        )
    if not numbers.has_bounds:
        return values, None
    return values, numbers.bounds(rows, width)
