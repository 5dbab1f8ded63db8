"""The format of the ratings file: names and types of its contents, and the hash of its data.

Format ``dsgmcmc-ratings``, an HDF5 file of version 2 with

========================  =========================  ===========================================
``/train``, ``/test``     ``indptr``                 (I+1,) int64, compressed sparse rows
..                        ``indices``                (nnz,) int32, columns, ascending in each row
..                        ``values``                 (nnz,) float32, ratings
``/train``                ``column_counts``          (J,) int64, training ratings of each column
..                        ``age``                    (nnz,) uint8, for a temporal split:
                                                     hundredth by time, latest is 0
``/rows/ids``             ``/cols/ids``              int64, or UTF-8 of fixed length: original names
``/rows/layout``          ``/cols/layout``           UTF-8 of fixed length: names of a matrix in its
                                                     order, with and without ratings; optional
``/rows/features``        ``indptr indices values``  int64, int32, float32: compressed sparse rows
..                        ``names groups``           (F,) UTF-8 of fixed length (`Features`)
..                        ``encoding``               (bytes,) uint8: encoding of the features,
                                                     JSON as UTF-8; optional
``/cols/features``                                   features of columns; both groups are optional
``/train``, ``/test``     ``times/SIDE/place``       int32, with SIDE rows and cols (`Times`)
..                        ``times/SIDE/page``
``/rows``, ``/cols``      ``times/place``            int32: number of places of each row or column
..                        ``times/page``             int32: number of pages; ``times`` are optional
attributes                ``format version``         text is UTF-8 of fixed length
..                        ``I J nnz nnz_test``       sizes
..                        ``mean min max``           mean and range of the training ratings
..                        ``seed transposed``        seed of shuffle and split; rows are items?
..                        ``source``                 names of the input files
..                        ``resolution``             step to which the ratings were recorded
                                                     (`dsgmcmc.ratings.resolution`); none without
                                                     one
..                        ``item_levels``            items clearly differ in their levels
                                                     (`dsgmcmc.ratings.item_levels`); or none
..                        ``reading``                JSON, options with which the input was read;
..                        ``columns``                JSON, role to column of the input (`NAMED`);
                                                     none for arrays and matrices
..                        ``heading``                column of users in a matrix; none without one
..                        ``content_sha256``         identifies the data: hash of the arrays without
                                                     encoding, counts and layout
========================  =========================  ===========================================

and of version 3 if it also has one of

========================  =========================  ===========================================
attributes                ``replicates``             number of ratings beyond the first of their
                                                     pair; columns may recur in a row
..                        ``mean_weight``            mean weight of the training ratings
``/train``, ``/test``     ``weight``                 (nnz,) float32, above 0: relative precisions
..                        ``lower upper``            (nnz,) float32: bounds of the ratings, infinite
                                                     without one, and both ``values`` of exact
                                                     ratings; ``values`` are then within them
``/train``, ``/test``     ``group``                  (nnz,) int32, if groups are held out: group of
                                                     each rating; earlier files have no ``/test``
``/rows/parts``           ``labels``                 (p,) UTF-8: columns of the parts of names, if
                                                     those of rows or columns have several
..                        ``0 1`` and so on          parts of names of several, like ``ids``, which
                                                     are left out
``/cols/parts``                                      the same of columns
``/item_levels``                                     (2 n,) float32: lowest levels of all n items,
                                                     then the highest; NaN if they are not said
``/directions``                                      (3,) UTF-8: columns of users, items and
                                                     context, if the table has three directions
attributes                ``is_open``                whether their arrangement is still open
..                        ``grouped_by``             JSON, columns whose values are the groups
========================  =========================  ===========================================

Rows and columns are in a seeded random order, so that contiguous ranges with equal nnz are
statistically alike. The rows are the longer side. The file does not depend on grids or processes.
Every data set is stored in chunks with HDF5's Fletcher32 checksums.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from dsgmcmc.types import Array, Float32, Int32, Int64, Mask

FORMAT = "dsgmcmc-ratings"
#: The version of a file with the contents of the table's first part, and of one with the second.
VERSION = 2
EXTENDED = 3
VERSIONS = (VERSION, EXTENDED)
MEAN_WEIGHT = "mean_weight"  # attribute of a file whose ratings have weights
REPLICATES = "replicates"  # attribute of a file whose pairs may have several measurements
DIRECTIONS = "directions"  # data set of a table with a context
IS_OPEN = "is_open"  # attribute of such a table
CHUNK = 1 << 16  # entries of a data set that are read and checked together
#: First text of the hashed content; it does not change with the layout of the file.
CONTENT = "dsgmcmc-ratings 1"
MAX_SIDE = 2**31 - 1  # column indices are int32
MAX_ID_BYTES = 1024
MAX_PARTS = 100  # of a name
MAX_FEATURES = 1_000_000
#: Features of a side with which a model can be sampled (`dsgmcmc.model.parts.features`).
MAX_SAMPLED_FEATURES = 4000
AGES = 100  # parts of equal size, by time, of the training ratings of a temporal split
SLAB = 250_000  # ratings that are read at a time

Split = Literal["train", "test"]
SPLITS: tuple[Split, Split] = ("train", "test")
Side = Literal["rows", "cols"]
SIDES: tuple[Side, Side] = ("rows", "cols")

#: Name of the attribute that only files of ratings with a resolution have, a float.
RESOLUTION = "resolution"
#: Name of the attribute that only files have whose items clearly differ in their levels, a bool;
#: and of the data set of the levels that users have said.
ITEM_LEVELS = "item_levels"
#: Name of the attribute with the columns of the input by role, a text.
COLUMNS = "columns"
#: Name of the attribute with what users have said of the input, a text (`Reading.stored`).
READING = "reading"
#: Name of the attribute with the columns of groups that are held out, a text.
GROUPED_BY = "grouped_by"
#: Name of the attribute with the column of users in a matrix, a text.
HEADING = "heading"
#: Roles whose columns a file remembers, so that later ratings are read from the same ones.
NAMED = ("user", "item", "rating", "weight", "lower", "upper", "relation")
#: Names and types of the attributes that every file has, which are scalars.
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


#: Types of NumPy that attributes have in a file.
STORED_TYPES: dict[type, type] = {
    str: np.bytes_,
    bool: np.bool_,
    int: np.integer,
    float: np.floating,
}


def parts_dataset(side: Side, part: int | str) -> str:
    """Return the data set of a part of names, from 0, or that of the ``labels`` of the parts."""
    return f"{side}/parts/{part}"


class Features(NamedTuple):
    """Features of all rows of a side, or of a range of rows.

    Attributes
    ----------
    indptr : (n + 1,) int64, starting at 0
        A row without entries has unknown features, and is taken to be average.
    indices : (nnz,) int32, ascending in each row
    values : (nnz,) float32
    names : (F,) of str
    groups : (F,) of str
        Source column of each feature; the features of a group share a prior strength.
    encoding : str
        Encoding by which features of new rows can be computed, as JSON; empty if unknown. The
        encoding is not part of the content hash.
    """

    indptr: Int64
    indices: Int32
    values: Float32
    names: tuple[str, ...]
    groups: tuple[str, ...]
    encoding: str = ""

    def matrix(self) -> Any:
        """Return the features as a scipy.sparse.csr_matrix (n, F)."""
        from scipy.sparse import csr_matrix  # slow to import, and most runs do not need it

        cells = (self.values.astype(np.float64), self.indices, self.indptr)
        return csr_matrix(cells, (len(self.indptr) - 1, len(self.names)))

    def datasets(self, side: Side) -> dict[str, Array]:
        """Return the arrays to store, by data set; the encoding is left out if it is unknown."""
        arrays: dict[str, Array] = {
            "indptr": self.indptr,
            "indices": self.indices,
            "values": self.values,
            "names": as_utf8(self.names),
            "groups": as_utf8(self.groups),
        }
        if self.encoding:
            arrays["encoding"] = np.frombuffer(self.encoding.encode(), np.uint8)
        return {f"{side}/features/{name}": array for name, array in arrays.items()}


class Directions(NamedTuple):
    """A table of three directions (`dsgmcmc.prepare.three_way`).

    Attributes
    ----------
    columns : (str, str, str)
        Columns of users, items and context.
    is_open : bool
        Whether their arrangement is still to be chosen; the file has one of the three.
    """

    columns: tuple[str, str, str]
    is_open: bool


def as_utf8(texts: tuple[str, ...]) -> Array:
    """Return texts as UTF-8 of fixed length."""
    return np.array([text.encode() for text in texts], "S")


class MatrixNames(NamedTuple):
    """Names of a matrix as its file has them.

    Attributes
    ----------
    heading : str
        Column of the names of users; "" without one.
    by_side : dict of side to (n,) array of ``S<n>``
        Names of all rows and columns in their order, also of those without ratings.
    """

    heading: str
    by_side: Mapping[Side, Array]


class Times(NamedTuple):
    """Positions in time of ratings within their rows, or within their columns: (m,) int32 each.

    The *place* of a rating is its rank by time, from 0, among all ratings of its row (or column),
    training and test together. Its *page* is the rank of its second among the distinct seconds of
    the row (or column). Times in seconds are not stored. Ratings within one second are in the order
    of the other side, which is random.

    For whole rows or columns, the two arrays are the numbers of places and of pages, (n,) int32
    each.
    """

    place: Int32
    page: Int32

    @classmethod
    def datasets(cls, side: Side, part: Split | None = None) -> tuple[str, str]:
        """Return the names of the data sets of a part; without it, of the counts of the side."""
        group = f"{side}/times" if part is None else f"{part}/times/{side}"
        return f"{group}/place", f"{group}/page"


def known_by_bounds(bounds: tuple[Array, Array]) -> Mask:
    """Which ratings are known only by their lower and upper bounds, which then differ."""
    lower, upper = bounds
    return np.asarray(lower < upper)


class Bounds(NamedTuple):
    """Bounds between which ratings are known to lie, (m,) float32 each; equal if they are exact."""

    lower: Float32
    upper: Float32

    @property
    def bounded(self) -> Mask:
        """Which ratings are not exact, (m,)."""
        return known_by_bounds(self)

    def less(self, centre: float) -> Bounds:
        """Return the bounds of the ratings less a number."""
        return Bounds(self.lower - np.float32(centre), self.upper - np.float32(centre))


class RowRatings(NamedTuple):
    """Ratings of a part in consecutive rows.

    Attributes
    ----------
    indptr : (n + 1,) int64, starting at 0
    indices : (m,) int32
        Columns, ascending in each row; a column may recur if pairs have several measurements.
    values : (m,) float32
    weights : (m,) float32 or None
        Relative precisions of the measurements, with a mean of 1 over all training ratings.
    bounds : Bounds or None
        Bounds of the ratings, if some are not exact; `values` then have stand-ins.
    """

    indptr: Int64
    indices: Int32
    values: Float32
    weights: Float32 | None = None
    bounds: Bounds | None = None

    def exact(self) -> RowRatings:
        """The ratings that are not known only by bounds."""
        if self.bounds is None:
            return self
        chosen = ~self.bounds.bounded
        return self.select(chosen, np.append(0, np.cumsum(chosen))[self.indptr])

    def select(self, chosen: Mask, indptr: Int64) -> RowRatings:
        """The ratings in a mask, (m,), with their index pointer."""
        weights = None
        if self.weights is not None:
            weights = self.weights[chosen]
        bounds = None
        if self.bounds is not None:
            bounds = Bounds(*(array[chosen] for array in self.bounds))
        return RowRatings(indptr, self.indices[chosen], self.values[chosen], weights, bounds)

    @property
    def rows(self) -> Int64:
        """Row of every rating, (m,) int64, counted from the first row; computed at every access."""
        return np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))

    @property
    def precisions(self) -> Array:
        """Weight of every rating, (m,) float; 1 if ratings have no weights."""
        if self.weights is None:
            return np.ones(len(self.values))
        return self.weights


class ContentHash:
    """SHA-256 of the arrays in a fixed order, which does not depend on how slabs divide them."""

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


def row_slabs(indptr: Int64, entries: int) -> Iterator[tuple[int, int]]:
    """Yield start and stop of consecutive ranges of rows, each as long as `entries` allows.

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
