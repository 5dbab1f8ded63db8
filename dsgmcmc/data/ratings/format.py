"""What the reader and the writer of ratings files share: limits, features, times, the content hash, checks."""

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
CONTENT = "dsgmcmc-ratings 1"  # begins what is hashed, and stays when the layout of the file changes
MAX_SIDE = 2**31 - 1  # column indices are int32
MAX_ID_BYTES = 1024
MAX_RATING = 1e15  # squares of it, and of its inverse, leave float32 room for sums and small variances

MAX_FEATURES = 1_000_000
AGES = 100  # parts of equal size, by time, of training ratings that are earlier than the test ratings

Split = Literal["train", "test"]
SPLITS: tuple[Split, Split] = ("train", "test")
Side = Literal["rows", "cols"]
SIDES: tuple[Side, Side] = ("rows", "cols")

#: Attributes of the file, each one scalar.
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
    "source_sha256": str,
    "content_sha256": str,
}


@dataclass(frozen=True)
class Features:
    """Features of all rows of a side, or of a range of them.

    Attributes
    ----------
    indptr : (n + 1,) int64, starting at 0
        A row without any entry has features that are unknown: it is taken to be like the average row.
    indices : (nnz,) int32, ascending in each row
    values : (nnz,) float32
    names : (F,) of str
    groups : (F,) of str
        The column of the source that each was made from; features of a group share their prior's strength.
    encoding : str
        How they were made, so that those of new rows can be made alike; empty where that is not known. No part of the
        data's identity.
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
        """Arrays that are stored, by data set; the encoding only where it is known, as UTF-8."""
        arrays: dict[str, Array] = {"indptr": self.indptr, "indices": self.indices, "values": self.values}
        for name, texts in (("names", self.names), ("groups", self.groups)):
            arrays[name] = np.array([text.encode() for text in texts], "S")
        if self.encoding:
            arrays["encoding"] = np.frombuffer(self.encoding.encode(), np.uint8)
        return {f"{side}/features/{name}": array for name, array in arrays.items()}


class StoredFeatures(NamedTuple):
    """Features of one side in an open ratings file, but for their values; see `Features`."""

    indptr: Int64
    names: tuple[str, ...]
    groups: tuple[str, ...]
    encoding: str


class Times(NamedTuple):
    """Where some ratings stand in time among those of their rows, or of their columns: (m,) int32 each.

    The *place* of a rating is its number, from 0, among all ratings of its row (or column), training and test together,
    in the order of time; its *page* is the number of the second that it was given in, among the seconds of that row.
    Times themselves are not kept. Ratings of one second are in the order of the other side, which is a random one.

    For whole rows or columns, these are how many places and pages there are: (n,) int32 each.
    """

    place: Int32
    page: Int32

    @classmethod
    def datasets(cls, side: Side, part: Split | None = None) -> tuple[str, str]:
        """Names of the data sets of a part's ratings; without a part, of how many each row (or column) has."""
        where = f"{part}/times/{side}" if part else f"{side}/times"
        return f"{where}/place", f"{where}/page"


def read_attribute(attributes: Any, name: str, kind: type) -> Any:
    """Read an attribute that must be a scalar of its type; text has a fixed length and is UTF-8.

    Raises ValueError if there is none, or it is something else.
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
    """SHA-256 over the arrays in a fixed order, however they were cut into slabs on the way."""

    def __init__(self) -> None:
        self._parts: dict[tuple[str, str], Any] = {}

    def update(self, name: str, array: Array) -> None:
        """Append the little-endian bytes of `array` to the data set `name`."""
        stored = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        part = self._parts.setdefault((name, stored.dtype.str), hashlib.sha256())
        part.update(stored.view(np.uint8).data)

    def hexdigest(self, n_rows: int, n_cols: int, transposed: bool) -> str:
        """Return the hash of everything seen."""
        total = hashlib.sha256(f"{CONTENT} {n_rows} {n_cols} {int(transposed)}\n".encode())
        for (name, dtype), part in sorted(self._parts.items(), key=lambda item: item[0]):
            total.update(f"{name} {dtype} {part.hexdigest()}\n".encode())
        return total.hexdigest()


def find_bad_cells(indptr: Int64, indices: Int32, values: Float32, n_cols: int) -> str | None:
    """Say what is wrong with a slab (`indptr` starts at 0), or None."""
    if len(indices) == 0:
        return None
    if int(indices.min()) < 0 or int(indices.max()) >= n_cols:
        return f"indices outside 0..{n_cols - 1}"
    ascending = np.empty(len(indices), dtype=bool)
    ascending[0] = True
    np.greater(indices[1:], indices[:-1], out=ascending[1:])
    starts = indptr[:-1]
    ascending[starts[starts < len(indices)]] = True  # a row may begin anywhere
    if not ascending.all():
        return "indices that do not ascend in their row"
    if not np.isfinite(values).all():
        return "values that are not finite"
    return None


def find_bad_attributes(attributes: Mapping[str, Any]) -> str | None:
    """Say what is wrong with the numbers of `ATTRIBUTES`, or None."""
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
    """Say what is wrong with ratings from `low` to `high` whose squares or variances leave float32, or None."""
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
        Most entries of a range, unless one row alone has more.
    """
    n_rows = len(indptr) - 1
    start = 0
    while start < n_rows:
        stop = int(np.searchsorted(indptr, indptr[start] + entries, side="right")) - 1
        stop = min(max(stop, start + 1), n_rows)
        yield start, stop
        start = stop
