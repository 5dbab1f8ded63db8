"""Reads R's .rds and .rda files by rdata, which runs no code of R.

Data frames and matrices become tables, as ``write.csv`` writes them; sparse matrices of the
package Matrix become entries.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import numpy as np

from dsgmcmc.errors import InputError, refusing
from dsgmcmc.input.sources.base import BLOCK_BYTES, Source
from dsgmcmc.input.sources.formats import refuse_size
from dsgmcmc.input.sources.labelled import (
    LabelledMatrix,
    as_table,
    as_texts,
    count_from_1,
    library,
    refuse_type,
    refuse_unstored,
    refuse_variable,
    select,
    table_of_columns,
    table_without_names,
)
from dsgmcmc.ratings.reading import Reading
from dsgmcmc.types import Array

_PACKERS: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
}
_STARTS = (b"RDX2\n", b"RDX3\n", b"RDA2\n", b"RDA3\n", b"X\n\0\0\0", b"A\n2\n", b"A\n3\n")
_NO_INTEGER = np.iinfo(np.int64).min  # NA of class integer64
#: Classes of Matrix: values, a triangle or a diagonal alone, and how positions are stored.
_KINDS = "dlni"
_FORMS = "gst"
_STORED = {"CMatrix", "RMatrix", "TMatrix"}


class _Frame(NamedTuple):
    """Columns of a data frame by name, and the names of its rows if it has any."""

    columns: dict[str, Any]
    rows: Array | None


class _Sparse(NamedTuple):
    """An object of the package Matrix: its class and its slots."""

    kind: str
    slots: Mapping[str, Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of rows and columns."""
        return tuple(int(n) for n in _plain(self.slots["Dim"]))

    @property
    def has_unit_diagonal(self) -> bool:
        """Whether ones on the diagonal are not stored."""
        return "".join(self.slots["diag"]) == "U"


def is_r(path: Path) -> bool:
    """Whether a file has R's format, which may be compressed in three ways."""
    try:
        with _unpacked(path) as file:
            return file.read(8).startswith(_STARTS)
    except (OSError, EOFError, lzma.LZMAError):
        return False


def _unpacked(path: Path) -> IO[bytes]:
    """Open a file that may be compressed."""
    with path.open("rb") as file:
        head = file.read(6)
    for start, opener in _PACKERS.items():
        if head.startswith(start):
            return cast("IO[bytes]", opener(path, "rb"))
    return path.open("rb")


def read_r(path: Path, choice: Reading, limit: int) -> Source:
    """Return a data frame or a matrix of a file; .rda files may have several objects."""
    rdata = library("rdata", path)
    is_one = _check_size(path, limit)
    extension = ".rda"
    if is_one:
        extension = ".rds"
    # rdata raises errors of many types
    with refusing(f"{path} cannot be read", Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parsed = rdata.parser.parse_file(
            path,
            extension=extension,
            altrep_constructor_dict=_altreps(rdata, limit),
        )
        found = rdata.conversion.convert(parsed, _constructors(), default_encoding="utf-8")
    if is_one:
        refuse_variable(path, choice)
        return _table(path, found, choice, limit)
    readable = [name for name, value in found.items() if _is_readable(value)]
    others = [name for name in found if name not in readable]
    return _table(path, found[select(path, readable, choice, others=others)], choice, limit)


def _check_size(path: Path, limit: int) -> bool:
    """Return whether a file has one object, as .rds files have.

    Raises InputError if it is damaged, or needs more memory than the limit.
    """
    errors = (OSError, EOFError, lzma.LZMAError)
    with refusing(f"{path} cannot be read", *errors), _unpacked(path) as file:
        start = file.read(5)
        size = len(start)
        while block := file.read(BLOCK_BYTES):
            size += len(block)
            refuse_size(path, size, limit)
    return not start.startswith(b"RD")


def _altreps(rdata: Any, limit: int) -> dict[bytes, Any]:
    """Return how compact vectors are expanded, with a limit on the length of a sequence."""

    def checked(expand: Any, state: Any) -> Any:
        if 8 * float(np.asarray(state.value)[0]) > limit:
            raise ValueError("it has a sequence that is too long for the memory")
        return expand(state)

    known = dict(rdata.parser.DEFAULT_ALTREP_MAP)
    for name in (b"compact_intseq", b"compact_realseq"):
        if name in known:
            known[name] = partial(checked, known[name])
    return known


# ------------------------------------------------------------------------------------------ classes


def _constructors() -> dict[str, Any]:
    """Return functions by classes of R that make a value of rdata's value and the attributes."""
    functions: dict[str, Any] = {
        "data.frame": _frame,
        "factor": _factor,
        "integer64": _integer64,
        "haven_labelled_spss": _labelled,
        "Date": _dates,
        "POSIXct": _times,
    }
    for kind in _KINDS:
        for form in _FORMS:
            for stored in _STORED:
                name = f"{kind}{form}{stored}"
                functions[name] = partial(_sparse, name)
        functions[f"{kind}diMatrix"] = partial(_sparse, f"{kind}diMatrix")
    return functions


def _sparse(kind: str, value: Any, attributes: Mapping[str, Any]) -> _Sparse:
    return _Sparse(kind, attributes)


def _frame(value: Any, attributes: Mapping[str, Any]) -> _Frame:
    """Return a data frame; its row names are names unless they count from 1."""
    columns = {}
    if isinstance(value, Mapping):
        columns = dict(value)
    names = attributes["row.names"]
    masked = np.ma.getmaskarray(np.ma.asarray(names))
    if len(names) == 2 and masked[0]:  # (NA, -n): without names
        return _Frame(columns, None)
    rows = as_texts(np.ma.getdata(np.ma.asarray(names)).tolist())
    if rows.tolist() == count_from_1(len(rows)).tolist():
        return _Frame(columns, None)
    return _Frame(columns, rows)


def _factor(value: Any, attributes: Mapping[str, Any]) -> Array:
    """Return the levels of a factor, as texts and None."""
    levels = list(attributes["levels"])
    codes = np.ma.asarray(_plain(value)).filled(0)
    return np.array([None, *levels], object)[np.maximum(codes, 0)]


def _integer64(value: Any, attributes: Mapping[str, Any]) -> Array:
    """Return whole numbers that are stored as the bits of doubles: as objects, with None."""
    numbers = np.ascontiguousarray(_plain(value), np.float64).view(np.int64)
    values = numbers.astype(object)
    values[numbers == _NO_INTEGER] = None
    return values


def _labelled(value: Any, attributes: Mapping[str, Any]) -> Array:
    """Return values of haven, of which some are declared missing."""
    numbers = _floats(value)
    codes = attributes.get("na_values")
    if codes is not None:
        numbers[np.isin(numbers, _floats(codes))] = np.nan
    ends = attributes.get("na_range")
    if ends is not None:
        low, high = _floats(ends).tolist()
        numbers[(numbers >= low) & (numbers <= high)] = np.nan
    return numbers


def _dates(value: Any, attributes: Mapping[str, Any]) -> Array:
    return _time_texts(_floats(value), "datetime64[D]")


def _times(value: Any, attributes: Mapping[str, Any]) -> Array:
    return _time_texts(_floats(value), "datetime64[s]")


def _time_texts(numbers: Array, kind: str) -> Array:
    """Return times since 1970 as texts, with None where they are missing."""
    known = ~np.isnan(numbers)
    texts = np.array([None] * len(numbers), object)
    texts[known] = [str(np.array(int(number)).astype(kind)) for number in numbers[known].tolist()]
    return texts


# ----------------------------------------------------------------------------------------- tables


def _is_readable(value: Any) -> bool:
    """Whether an object is a data frame, a matrix of numbers or a sparse matrix."""
    if isinstance(value, _Frame | _Sparse):
        return True
    return getattr(value, "ndim", 0) == 2 and getattr(value, "dtype", None) is not None


def _table(path: Path, value: Any, choice: Reading, limit: int) -> Source:
    """Return the table of an object of R."""
    if isinstance(value, _Sparse):
        return _table_of_sparse(path, value, choice, limit)
    refuse_unstored(path, choice)
    if isinstance(value, _Frame):
        return _table_of_frame(path, value)
    if not _is_readable(value):
        raise InputError(
            f"{path} has a {type(value).__name__}, not a data frame or a matrix of numbers: in R,"
            " convert it by as.data.frame or as.matrix"
        )
    values = _floats(value)
    rows = _labels(value, 0)
    columns = _labels(value, 1)
    if columns is None and rows is None:
        return table_without_names(path, values)
    if columns is None:
        columns = as_texts(f"V{k}" for k in range(1, values.shape[1] + 1))
    named_columns = dict(zip(columns.tolist(), values.T, strict=True))
    if len(named_columns) < len(columns):
        raise InputError(f"{path}: two columns of the matrix have the same name")
    if rows is not None:
        named_columns = {"": rows, **named_columns}
    return table_of_columns(path, named_columns)


def _table_of_frame(path: Path, frame: _Frame) -> Source:
    """Return a data frame as a table, with the names of rows in a first column without a name."""
    columns = {}
    if frame.rows is not None:
        columns[""] = frame.rows
    for name, value in frame.columns.items():
        column = _column(value)
        if column is None:
            raise InputError(
                f"{path}: column {name} of the data frame is no vector: leave it out in R"
            )
        columns[str(name)] = column
    if not columns:
        raise InputError(f"{path} has a data frame without columns")
    return table_of_columns(path, columns)


def _column(value: Any) -> Array | None:
    """Return a column as numbers, or texts with None; None if it is something else."""
    plain = _plain(value)
    if getattr(plain, "ndim", 0) != 1:
        return None
    if plain.dtype.kind in "OU":
        return np.array(plain.tolist(), object)
    if plain.dtype.kind in "fiub":
        if np.ma.is_masked(plain):
            return _floats(plain)
        return np.ma.getdata(plain)
    return None


def _plain(value: Any) -> Any:
    """Return the array of a value that may have names."""
    return getattr(value, "values", value)


def _floats(value: Any) -> Array:
    """Return numbers as float64, with NaN where they are missing."""
    plain = np.ma.asarray(_plain(value))
    refuse_type("it", plain.dtype)
    numbers: Array = np.ma.getdata(plain).astype(np.float64)
    numbers[np.ma.getmaskarray(plain)] = np.nan
    return numbers


def _labels(value: Any, axis: int) -> Array | None:
    """Return the names of the rows or columns of a matrix, or None."""
    dims = getattr(value, "dims", ())
    if not dims or dims[axis] not in value.coords:
        return None
    return as_texts(value.coords[dims[axis]].values)


# ---------------------------------------------------------------------------------------- Matrix


def _table_of_sparse(path: Path, value: _Sparse, choice: Reading, limit: int) -> Source:
    """Return a sparse matrix of the package Matrix as entries."""
    with refusing(f"{path}, {value.kind}, cannot be read", KeyError, ValueError, TypeError):
        matrix = _matrix(value)
        names = value.slots.get("Dimnames") or (None, None)
        if isinstance(names, Mapping):
            names = names.values()
        users, items = map(_names_of_axis, names, matrix.shape)
    about = "users are rows, items are columns"
    return as_table(path, LabelledMatrix(users, items, matrix, about), choice, limit)


def _names_of_axis(names: Any, n: int) -> Array:
    """Return the names of n rows or columns; numbers from 1 without names."""
    if names is None:
        return count_from_1(n)
    return as_texts(names)


def _matrix(value: _Sparse) -> Any:
    """Return a SciPy matrix: all of a symmetric one, with the diagonal of a unit one."""
    import scipy.sparse  # slow to import

    if value.kind.endswith("diMatrix"):
        return _diagonal_matrix(value)
    matrix = _stored_matrix(value)
    form = value.kind[1]
    if form == "s":
        return _mirrored(matrix)
    if form == "t" and value.has_unit_diagonal:
        return (matrix + scipy.sparse.identity(matrix.shape[0])).tocoo()
    return matrix


def _diagonal_matrix(value: _Sparse) -> Any:
    """Return a diagonal matrix, with all of its diagonal."""
    import scipy.sparse  # slow to import

    n = value.shape[0]
    numbers = np.ones(n)
    if not value.has_unit_diagonal:
        numbers = _floats(value.slots["x"])
    return scipy.sparse.coo_matrix((numbers, (np.arange(n), np.arange(n))), shape=value.shape)


def _stored_matrix(value: _Sparse) -> Any:
    """Return the cells that are stored.

    Cells that a dgTMatrix has several times are added up, as R does.
    """
    import scipy.sparse  # slow to import

    slots = value.slots
    shape = value.shape
    stored = value.kind[2:]
    positions = {
        name: _floats(slots[name]).astype(np.int64) for name in "ijp" if slots.get(name) is not None
    }
    n = len(positions.get("i", positions.get("j", ())))
    if value.kind[0] == "n":
        numbers = np.ones(n)
    else:
        numbers = _floats(slots["x"])
    if stored == "TMatrix":
        matrix = scipy.sparse.coo_matrix((numbers, (positions["i"], positions["j"])), shape=shape)
    elif stored == "CMatrix":
        matrix = scipy.sparse.csc_matrix((numbers, positions["i"], positions["p"]), shape=shape)
        matrix.check_format(full_check=True)
    else:
        matrix = scipy.sparse.csr_matrix((numbers, positions["j"], positions["p"]), shape=shape)
        matrix.check_format(full_check=True)
    matrix = matrix.tocoo()
    matrix.sum_duplicates()
    return matrix


def _mirrored(matrix: Any) -> Any:
    """Return all of a symmetric matrix, of which a triangle is given."""
    import scipy.sparse  # slow to import

    off = matrix.row != matrix.col
    row = np.concatenate([matrix.row, matrix.col[off]])
    col = np.concatenate([matrix.col, matrix.row[off]])
    numbers = np.concatenate([matrix.data, matrix.data[off]])
    return scipy.sparse.coo_matrix((numbers, (row, col)), shape=matrix.shape)
