"""Limits, features, times, the content hash and checks, for the reader and the writer of ratings files."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from dsgmcmc.types import Array, Float32, Int32, Int64

FORMAT = "dsgmcmc-ratings"
VERSION = 2
CHUNK = 1 << 16  # entries of a data set that are read and checked together
CONTENT = "dsgmcmc-ratings 1"  # first text of the hashed content; does not change with the layout of the file
MAX_SIDE = 2**31 - 1  # column indices are int32
MAX_ID_BYTES = 1024
MAX_RATING = 1e15  # its square and the inverse leave room in float32 for sums and small variances

MAX_FEATURES = 1_000_000
AGES = 100  # number of parts of equal size, by time, into which a temporal split divides training ratings

Split = Literal["train", "test"]
SPLITS: tuple[Split, Split] = ("train", "test")
Side = Literal["rows", "cols"]
SIDES: tuple[Side, Side] = ("rows", "cols")

#: Names and types of the attributes of the file, which are scalars.
ATTRIBUTES: dict[str, type] = {
    "format": str,
    "version": int,
    "I": int,
    "J": int,
    "nnz": int,
    "nnz_test": int,
    "mean": float,
    "min": float,
    "max": float,
    "seed": int,
    "transposed": bool,
    "source": str,
    "content_sha256": str,
}


@dataclass(frozen=True)
class Features:
    """Features of all rows of a side, or of a range of them.

    Attributes
    ----------
    indptr : (n + 1,) int64, starting at 0
        The features of a row without entries are unknown; the row is taken to be average.
    indices : (nnz,) int32, ascending in each row
    values : (nnz,) float32
    names : (F,) of str
    groups : (F,) of str
        Source column of each feature; the features of a group share a prior strength.
    encoding : str
        Encoding by which features of new rows can be computed, as JSON; empty if unknown. The encoding is not part of
        the content hash.
    """

    indptr: Int64
    indices: Int32
    values: Float32
    names: tuple[str, ...]
    groups: tuple[str, ...]
    encoding: str = ""

    @property
    def size(self) -> int:
        """Number F of features."""
        return len(self.names)

    def datasets(self, side: Side) -> dict[str, Array]:
        """Arrays to be stored, by data set; the encoding, as UTF-8, only if it is known."""
        arrays: dict[str, Array] = {"indptr": self.indptr, "indices": self.indices, "values": self.values}
        for name, texts in (("names", self.names), ("groups", self.groups)):
            arrays[name] = np.array([text.encode() for text in texts], "S")
        if self.encoding:
            arrays["encoding"] = np.frombuffer(self.encoding.encode(), np.uint8)
        return {f"{side}/features/{name}": array for name, array in arrays.items()}


class StoredFeatures(NamedTuple):
    """Features of one side in an open ratings file, as in `Features` but without indices and values."""

    indptr: Int64
    names: tuple[str, ...]
    groups: tuple[str, ...]
    encoding: str


class Times(NamedTuple):
    """Positions in time of ratings within their rows, or within their columns: (m,) int32 each.

    The *place* of a rating is its number, from 0, in the order of time among all ratings of its row (or column),
    training and test together. Its *page* is the number of its second among the distinct seconds of the row (or
    column). Times in seconds are not stored. Ratings of one second are in the order of the other side, which is random.

    For whole rows or columns, the two arrays are the numbers of places and of pages, (n,) int32 each.
    """

    place: Int32
    page: Int32

    @classmethod
    def datasets(cls, side: Side, part: Split | None = None) -> tuple[str, str]:
        """Names of the data sets for ratings of a part; without a part, for the numbers per row (or column)."""
        where = f"{part}/times/{side}" if part else f"{side}/times"
        return f"{where}/place", f"{where}/page"


def read_attribute(attributes: Any, name: str, kind: type) -> Any:
    """Read an attribute that must be a scalar of its type; text has a fixed length and is UTF-8.

    Raises ValueError if the attribute is missing, or of another type.
    """
    if name not in attributes:
        raise ValueError(f"it has no attribute {name!r}")
    attribute = attributes.get_id(name)
    scalar = {str: np.bytes_, bool: np.bool_, int: np.integer, float: np.floating}[kind]
    if attribute.shape != () or not np.issubdtype(attribute.dtype, scalar):
        raise ValueError(f"attribute {name!r} is not one {kind.__name__}")
    value = attributes[name]
    return value.decode() if kind is str else kind(value)


class ContentHash:
    """SHA-256 of the arrays in a fixed order; the division of arrays into slabs does not matter."""

    def __init__(self) -> None:
        self._parts: dict[tuple[str, str], Any] = {}

    def update(self, name: str, array: Array) -> None:
        """Append the little-endian bytes of `array` to the data set `name`."""
        stored = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        part = self._parts.setdefault((name, stored.dtype.str), hashlib.sha256())
        part.update(stored.view(np.uint8).data)

    def hexdigest(self, n_rows: int, n_cols: int, transposed: bool) -> str:
        """Return the hash of the sizes and of all arrays."""
        total = hashlib.sha256(f"{CONTENT} {n_rows} {n_cols} {int(transposed)}\n".encode())
        for (name, dtype), part in sorted(self._parts.items(), key=lambda item: item[0]):
            total.update(f"{name} {dtype} {part.hexdigest()}\n".encode())
        return total.hexdigest()


def find_bad_cells(indptr: Int64, indices: Int32, values: Float32, n_cols: int) -> str | None:
    """Return a description of the first fault in a slab (`indptr` starts at 0), or None."""
    if len(indices) == 0:
        return None
    if int(indices.min()) < 0 or int(indices.max()) >= n_cols:
        return f"indices outside 0..{n_cols - 1}"
    ascending = np.empty(len(indices), dtype=bool)
    ascending[0] = True
    np.greater(indices[1:], indices[:-1], out=ascending[1:])
    starts = indptr[:-1]
    ascending[starts[starts < len(indices)]] = True  # the first index of a row may be any
    if not ascending.all():
        return "indices that do not ascend in their row"
    if not np.isfinite(values).all():
        return "values that are not finite"
    return None


def find_bad_attributes(attributes: Mapping[str, Any]) -> str | None:
    """Return a description of the first fault in the attributes, or None."""
    rows, cols, low, mean, high = (attributes[name] for name in ("I", "J", "min", "mean", "max"))
    if not (0 < cols <= rows <= MAX_SIDE):
        return f"I={rows}, J={cols}: expected 0 < J <= I <= {MAX_SIDE}"
    if attributes["nnz"] < 1 or attributes["nnz_test"] < 0:
        return f"nnz={attributes['nnz']}, nnz_test={attributes['nnz_test']}"
    # NaN fails every comparison; the mean in float64 may round just outside equal extremes
    slack = 1e-6 * max(1.0, abs(low), abs(high))
    if not low - slack <= mean <= high + slack or not math.isfinite(mean):
        return f"min={low}, mean={mean}, max={high}"
    return None if len(attributes["content_sha256"]) == 64 else "content_sha256 is not a SHA-256"


def find_bad_scale(low: float, high: float) -> str | None:
    """Return an error message if squares or variances of ratings from `low` to `high` leave float32, or None."""
    largest, spread = max(abs(low), abs(high)), high - low
    if largest > MAX_RATING:
        factor, limit = 10.0 ** -math.floor(math.log10(largest)), f"at most {MAX_RATING:g}"
    elif 0 < spread < 1 / MAX_RATING:
        factor, limit = 10.0 ** -math.floor(math.log10(spread)), f"at least {1 / MAX_RATING:g} apart"
    else:
        return None
    return (
        f"ratings are from {low:g} to {high:g}, but single precision needs them to be {limit}: "
        f"multiply them by {factor:g}, or remove values that are not ratings"
    )


def row_slabs(indptr: Int64, entries: int) -> Iterator[tuple[int, int]]:
    """Cut rows into consecutive ranges of about `entries` entries, at least one row each.

    Parameters
    ----------
    indptr : (n+1,) int64
        Non-decreasing.
    entries : int
        Largest number of entries in a range, unless a single row has more.
    """
    n_rows = len(indptr) - 1
    start = 0
    while start < n_rows:
        stop = int(np.searchsorted(indptr, indptr[start] + entries, side="right")) - 1
        stop = min(max(stop, start + 1), n_rows)
        yield start, stop
        start = stop
