"""Reads matrices of genes: GCT files of versions 1.2 and 1.3, and folders of 10x.

Rows of both are genes, which become items; columns are samples or cells, which become users.
Format of GCT: https://clue.io/connectopedia/gct_format.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.input.sources.base import Source, opened
from dsgmcmc.input.sources.labelled import (
    LabelledMatrix,
    as_table,
    as_texts,
    is_empty_word,
    refuse_cells,
    refuse_variable,
)
from dsgmcmc.input.sources.tables import is_number
from dsgmcmc.ratings.reading import Reading
from dsgmcmc.settings import named
from dsgmcmc.tables.usual import joined
from dsgmcmc.types import Array

_MISSING = -666.0  # as GCT files have it
_MARKET = ("matrix.mtx", "matrix.mtx.gz")


def is_gct(lines: Sequence[str]) -> bool:
    """Whether a file begins as GCT does."""
    return lines[0].strip() in ("#1.2", "#1.3")


class _Sizes(NamedTuple):
    """The second line of a GCT file: numbers of genes and samples, and of their annotations."""

    genes: int
    samples: int
    of_genes: int = 1  # the description, in version 1.2
    of_samples: int = 0


def read_gct(path: Path, choice: Reading, limit: int) -> Source:
    """Return the values of a GCT file; -666, NaN, NA and empty cells are missing."""
    refuse_variable(path, choice)
    with opened(path) as file, io.TextIOWrapper(file, "utf-8-sig", newline="") as text:
        try:
            matrix = _matrix_of_gct(
                path, csv.reader(text, delimiter="\t", quoting=csv.QUOTE_NONE), limit
            )
        except (csv.Error, UnicodeDecodeError) as error:
            raise InputError(f"{path} cannot be read: {error}") from error
    return as_table(path, matrix, choice, limit)


def _matrix_of_gct(path: Path, rows: Iterator[list[str]], limit: int) -> LabelledMatrix:
    """Return the matrix in the rows of a file."""
    version = next(rows)[0].strip()
    sizes = _sizes(path, version, next(rows, []))
    first = 1 + sizes.of_genes
    width = first + sizes.samples
    header = next(rows, [])
    if len(header) != width:
        raise InputError(
            f"{path}, line 3: expected {width} names of columns, because line 2 has"
            f" {sizes.samples} samples; found {len(header)}"
        )
    refuse_cells(path, (sizes.genes, sizes.samples), limit)
    for _ in range(sizes.of_samples):
        next(rows, None)
    genes = []
    values = np.empty((sizes.samples, sizes.genes))
    for number, row in enumerate(row for row in rows if row):
        line = 4 + sizes.of_samples + number
        if number == sizes.genes or len(row) != width:
            raise InputError(
                f"{path}, line {line}: expected {sizes.genes} rows of {width} columns, as line 2"
                f" says; found {len(row)} columns in row {number + 1}"
            )
        genes.append(row[0])
        for k, cell in enumerate(row[first:]):
            values[k, number] = _value(path, line, cell)
    if len(genes) != sizes.genes:
        raise InputError(f"{path} has {len(genes)} rows, but line 2 says {sizes.genes}")
    about = "users are samples (columns), items are rows"
    return LabelledMatrix(as_texts(header[first:]), as_texts(genes), values, about)


def _sizes(path: Path, version: str, fields: list[str]) -> _Sizes:
    """Return the sizes in the second line."""
    expected = {"#1.2": 2, "#1.3": 4}[version]
    numbers = [field.strip() for field in fields if field.strip()]
    if len(numbers) != expected or not all(number.isdecimal() for number in numbers):
        raise InputError(f"{path}, line 2: expected {expected} numbers; found {fields}")
    return _Sizes(*map(int, numbers))


def _value(path: Path, line: int, cell: str) -> float:
    """Return the number in a cell."""
    if is_empty_word(cell):
        return math.nan
    if not is_number(cell.strip()):
        raise InputError(f"{path}, line {line}: {cell[:60]!r} is not a number")
    number = float(cell)
    if number == _MISSING:
        return math.nan
    return number


# ---------------------------------------------------------------------------------------------- 10x


def is_tenx(path: Path) -> bool:
    """Whether a folder has a matrix as 10x's programs write it."""
    return path.is_dir() and any((path / name).exists() for name in _MARKET)


def read_tenx(
    path: Path, read_market: Callable[[Path], Any], choice: Reading, limit: int
) -> Source:
    """Return the matrix in a folder, given a function that reads MatrixMarket.

    Features of one type are read, such as ``Gene Expression``.
    """
    market = read_market(_file(path, _MARKET))
    cells = _column(_rows(path, ("barcodes.tsv", "barcodes.tsv.gz")), 0)
    features = _rows(path, ("features.tsv", "features.tsv.gz", "genes.tsv", "genes.tsv.gz"))
    genes = _column(features, 0)
    if market.shape != (len(genes), len(cells)):
        raise InputError(
            f"{path}: the matrix has {market.shape[0]} rows and {market.shape[1]} columns, but"
            f" there are {len(genes)} features and {len(cells)} barcodes"
        )
    kept = _rows_of_type(path, _column(features, 2), choice)
    matrix = market.tocsr()[kept].T
    about = "users are barcodes, items are features"
    return as_table(path, LabelledMatrix(cells, genes[kept], matrix, about), choice, limit)


def _rows_of_type(path: Path, types: Array, choice: Reading) -> Array:
    """Return the rows of the features of a type.

    Raises InputError if there are several types, and none is chosen.
    """
    known = list(dict.fromkeys(types.tolist()))
    if choice.variable is None and len(known) == 1:
        return np.arange(len(types))
    if choice.variable not in known:
        raise InputError(
            f"{path} has features of the types {joined(known)}: say which are read, such as"
            f" {named('variable')} {known[0]!r}"
        )
    return np.flatnonzero(types == choice.variable)


def _file(path: Path, names: Sequence[str]) -> Path:
    """Return the first of some files that a folder has."""
    for name in names:
        if (path / name).exists():
            return path / name
    raise InputError(f"{path} has no {' or '.join(names)}")


def _rows(path: Path, names: Sequence[str]) -> list[list[str]]:
    """Return the fields of the lines of a file of tabs, the first of some that a folder has."""
    with opened(_file(path, names)) as file:
        lines = file.read().decode("utf-8", "replace").splitlines()
    return [line.split("\t") for line in lines if line.strip()]


def _column(rows: Sequence[Sequence[str]], k: int) -> Array:
    """Return a column of rows; empty texts where rows are shorter."""
    return np.array([row[k].strip() if len(row) > k else "" for row in rows], object)
