"""A matrix whose rows and columns have names, as files and objects of the sciences hold it.

`dsgmcmc.input.sources.science` reads such files, `dsgmcmc.input.sources.annotated` such objects.
The matrix becomes a table of its known cells, which is read as all tables of ratings are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.input.sources.base import Source
from dsgmcmc.input.sources.columns import MemoryTable
from dsgmcmc.input.sources.limits import SIDES, Limits, RatedCells, bounded_cells, read_texts
from dsgmcmc.input.sources.matrix import ENTRIES, Entries
from dsgmcmc.ratings.reading import Reading
from dsgmcmc.settings import named
from dsgmcmc.tables.usual import EMPTY, joined, shortened
from dsgmcmc.types import Array

#: Bytes that reading a cell takes: row, column, their names, and the value twice.
CELL_BYTES = 48
_SHOWN = 5  # names that a message shows


class LabelledMatrix(NamedTuple):
    """A matrix with a row for each user and a column for each item.

    Attributes
    ----------
    users, items : (n,) and (m,) object
        Names, as texts.
    values : (n, m) array of numbers or texts, or SciPy sparse matrix
        NaN where a cell of an array is not rated. Texts are numbers, or bounds such as ``<0.1``.
    about : str
        What users and items are, for messages.
    limits : Limits, optional
        Limits of cells that are known only by them.
    """

    users: Array
    items: Array
    values: Any
    about: str
    limits: Limits | None = None


def as_table(path: Path, matrix: LabelledMatrix, choice: Reading, limit: int) -> Source:
    """Return the known cells of a matrix as a table of entries.

    Raises InputError as `known_cells` does.
    """
    if choice.columns:
        raise InputError(f"{path} is a matrix: leave out {named('columns')}")
    cells = known_cells(path, matrix, choice, limit)
    about = matrix.about
    if hasattr(matrix.values, "tocoo"):
        about += f"; cells that are not stored are {meaning(choice)}"
    names = list(ENTRIES)
    arrays = [cells.row, cells.col, cells.values]
    if cells.bounds is not None:
        names += SIDES
        arrays += list(cells.bounds)
    axes = (matrix.users, matrix.items)
    limits: Mapping[str, str] = {}
    if matrix.limits is not None:
        limits = matrix.limits.names
        about += f"; {matrix.limits.describe()}"
    return Entries(path, names, arrays=arrays, axes=axes, limits=limits, about=about)


def meaning(choice: Reading) -> str:
    """Return what cells are that a matrix does not store."""
    if choice.unstored == "zero":
        return "ratings of 0"
    if choice.unstored == "limit":
        return "known by their limits"
    return "not rated"


def known_cells(where: object, matrix: LabelledMatrix, choice: Reading, limit: int) -> RatedCells:
    """Return the cells that are ratings, of which some may be known only by bounds.

    Raises InputError if names recur, if values are no real numbers, if a sparse matrix has repeated
    entries, or cells whose meaning the user has not chosen, or if memory of `limit` bytes does not
    suffice; and as `bounded_cells` and `read_texts` do.
    """
    _refuse_names(where, matrix)
    values = matrix.values
    limits = matrix.limits
    if limits is None:
        refuse_limit(where, choice)
    if values.dtype == object:
        return _cells_of_texts(where, matrix, choice, limit)
    refuse_type(where, values.dtype)
    if hasattr(values, "tocoo"):
        cells = _cells_of_sparse(where, matrix, choice, limit)
    else:
        if limits is None or choice.unstored == "zero":
            refuse_unstored(where, choice)
        refuse_cells(where, values.shape, limit)
        cells = cells_of_array(values, limits)
    if limits is None:
        return cells
    return bounded_cells(where, cells, limits, choice)


def _cells_of_texts(
    where: object, matrix: LabelledMatrix, choice: Reading, limit: int
) -> RatedCells:
    """Return the cells of a matrix of texts, some of which may be bounds."""
    refuse_unstored(where, choice)
    if matrix.limits is not None:
        raise InputError(
            f"{where} has texts, which may be bounds: leave out {named('columns')}"
            f" ({matrix.limits.describe()})"
        )
    refuse_cells(where, matrix.values.shape, limit)
    values, bounds = read_texts(where, matrix.values, choice)
    cells = cells_of_array(values)
    if bounds is None:
        return cells
    return cells._replace(bounds=bounds[:, cells.row, cells.col])


def cells_of_array(values: Array, limits: Limits | None = None) -> RatedCells:
    """Return the cells of an array that are not NaN, or have a limit."""
    is_known = ~np.isnan(values)
    if limits is not None:
        is_known |= limits.exist
    row, col = np.nonzero(is_known)
    return RatedCells(row, col, values[row, col].astype(np.float64))


def _cells_of_sparse(
    where: object, matrix: LabelledMatrix, choice: Reading, limit: int
) -> RatedCells:
    """Return the entries of a sparse matrix, or all its cells, with NaN where limits say more."""
    values = matrix.values
    if choice.unstored is None:
        n_unstored = math.prod(values.shape) - values.nnz
        raise InputError(
            f"{where} has a sparse matrix of {values.shape[0]:,} x {values.shape[1]:,} cells, and"
            f" does not store {n_unstored:,} of them: are these not rated, or ratings of 0 (as"
            f" counts of 0 are)? Give {named('unstored')} missing or {named('unstored')} zero"
        )
    if choice.unstored == "missing":
        refuse_cells(where, (values.nnz,), limit)
    else:
        refuse_filling(where, values.shape, limit)
    entries = values.tocoo()
    position = entries.row.astype(np.int64) * values.shape[1] + entries.col
    n_repeated = len(position) - len(np.unique(position))
    if n_repeated:
        raise InputError(
            f"{where} has a sparse matrix that stores {n_repeated:,} cell(s) more than once: add"
            " them up (SciPy: sum_duplicates), or remove them"
        )
    if choice.unstored == "zero":
        return cells_of_array(values.toarray())
    stored = RatedCells(entries.row, entries.col, entries.data.astype(np.float64))
    if choice.unstored == "missing" or matrix.limits is None:
        return stored
    filled = np.full(values.shape, np.nan)
    filled[stored.row, stored.col] = stored.values
    row, col = np.indices(filled.shape).reshape(2, -1)
    return RatedCells(row, col, filled.ravel())


def _refuse_names(where: object, matrix: LabelledMatrix) -> None:
    """Raise InputError if names recur, are empty, or are not as many as rows or columns."""
    if matrix.values.ndim != 2 or matrix.values.shape != (len(matrix.users), len(matrix.items)):
        raise InputError(
            f"{where} has {len(matrix.users)} and {len(matrix.items)} names for the rows and"
            f" columns of a matrix of shape {matrix.values.shape}"
        )
    for names, role in ((matrix.users, "user"), (matrix.items, "item")):
        blank = [k for k, name in enumerate(names) if not str(name).strip() or "\0" in str(name)]
        if blank:
            raise InputError(f"{where}: {role} {blank[0] + 1} has no name")
        first: dict[str, int] = {}
        repeated = [name for k, name in enumerate(names) if first.setdefault(name, k) != k]
        if repeated:
            raise InputError(
                f"{where}: {len(repeated)} name(s) of {role}s recur ({shortened(repeated)}): make"
                " names unique"
            )


# ------------------------------------------------------------------------------------------ checks


def refuse_type(where: object, dtype: Any) -> None:
    """Raise InputError if values are no real numbers; Python objects never are."""
    if np.dtype(dtype).kind not in "fiub":
        raise InputError(f"{where} has values of type {dtype}, not real numbers")


def refuse_cells(where: object, shape: Sequence[int], limit: int, *, advice: str = "") -> None:
    """Raise InputError if reading cells of this shape needs more than `limit` bytes of memory.

    The message ends with the advice.
    """
    size = CELL_BYTES * math.prod(shape)
    if size <= limit:
        return
    cells = " x ".join(f"{n:,}" for n in shape)
    raise InputError(
        f"{where} has {cells} cells, which take {size / 1e9:,.1f} GB to read, and"
        f" {limit / 1e9:,.1f} GB may be used: raise {named('memory')}, or select some rows and"
        f" columns{advice}"
    )


def refuse_filling(where: object, shape: Sequence[int], limit: int) -> None:
    """Raise InputError, as `refuse_cells`, if all cells of a sparse matrix are to be read."""
    refuse_cells(
        where,
        shape,
        limit,
        advice=f"; if cells that are not stored are not rated, give {named('unstored')} missing",
    )


class NothingUnstoredError(InputError):
    """A file has no cells of which `unstored` says something."""


def refuse_unstored(where: object, choice: Reading) -> None:
    """Raise NothingUnstoredError if the user has said what cells mean that a matrix does not store.

    The matrix stores all its cells.
    """
    if choice.unstored is not None and not choice.remembered:
        raise NothingUnstoredError(f"{where} has no sparse matrix: leave out {named('unstored')}")


def refuse_limit(where: object, choice: Reading) -> None:
    """Raise NothingUnstoredError if cells are to be known by their limits, but have none."""
    if choice.unstored == "limit" and not choice.remembered:
        raise NothingUnstoredError(
            f"{where} has no limits that {named('unstored')} limit could mean: name them by"
            f" {named('columns')} upper=NAME or lower=NAME"
        )


def refuse_variable(where: object, choice: Reading) -> None:
    """Raise InputError if the user has named one of several matrices, but there is only one."""
    if choice.variable is not None and not choice.remembered:
        raise InputError(f"{where} does not hold several matrices: leave out {named('variable')}")


def refuse_lines(where: object, choice: Reading) -> None:
    """Raise InputError if the user has said something of lines, but there are none."""
    for option in ("first_line", "skip_rows"):
        if getattr(choice, option) and not choice.remembered:
            raise InputError(f"{where} is no text with lines: leave out {named(option)}")


def select(
    where: object, candidates: Sequence[str], choice: Reading, *, others: Sequence[str] = ()
) -> str:
    """Return the name of the matrix that is read: the chosen one, or the only one.

    Raises InputError without a choice among several candidates, or if there is no such matrix;
    `others` may be chosen, too.
    """
    if choice.variable is not None:
        if choice.variable in (*candidates, *others):
            return choice.variable
        known = shortened([*candidates, *others])
        raise InputError(
            f"{where} has no {choice.variable!r}, which {named('variable')} names: it has {known}"
        )
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        text = f"{where} has no matrix or table that can be read"
        if others:
            text += f"; it has {shortened(others)}"
        raise InputError(text)
    shown = [repr(name) for name in candidates[:_SHOWN]]
    if len(candidates) > _SHOWN:
        shown.append("others")
    raise InputError(
        f"{where} has {joined(shown)}: which of them has the ratings? Give {named('variable')} NAME"
    )


def library(name: str, path: object) -> Any:
    """Import a library of the extra "science"; raise InputError if it is not installed."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise InputError(
            f'{path} is read by {name}, which is not installed: pip install "dsgmcmc[science]"'
        ) from error


# ------------------------------------------------------------------------------------------ tables


def table_of_columns(path: Path, columns: Mapping[str, Array]) -> Source:
    """Return a table of named columns of numbers or texts; NaN and None are missing."""
    return MemoryTable.of(path, {name: _with_none(column) for name, column in columns.items()})


def table_without_names(path: Path, values: Array) -> Source:
    """Return the columns of an array (n, k) as a table without a header."""
    columns = {f"column {k + 1}": _with_none(column) for k, column in enumerate(values.T)}
    sample = [[str(value) for value in row] for row in values[:_SHOWN].tolist()]
    return replace(MemoryTable.of(path, columns), header=False, sample=sample)


def _with_none(column: Array) -> Array:
    """Return a column of numbers with None in place of NaN, if there is any."""
    if column.dtype.kind == "f":
        missing = np.isnan(column)
        if missing.any():
            column = column.astype(object)
            column[missing] = None
    return column


def as_texts(names: Iterable[Any]) -> Array:
    """Return names as texts."""
    return np.array([str(name) for name in names], object)


def count_from_1(n: int) -> Array:
    """Return the texts 1, 2, ..., n."""
    return as_texts(range(1, n + 1))


def is_empty_word(text: str) -> bool:
    """Whether a text stands for a cell without a number."""
    return text.strip().lower() in EMPTY
