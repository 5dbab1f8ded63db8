"""The known cells of a matrix: all ratings of a run, those for the test included."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dsgmcmc.posterior.draws import OTHER
from dsgmcmc.posterior.rows.new_ratings import NewRatings
from dsgmcmc.posterior.run import Run
from dsgmcmc.ratings.format import SPLITS
from dsgmcmc.ratings.pairs import RatedPairs, join, rated_pairs, select
from dsgmcmc.types import Array, Float32, Float64, Int32, Int64

if TYPE_CHECKING:  # slow to import
    from scipy.sparse import csr_matrix

#: Numbers of significant digits with which a float32 may have been written.
DIGITS = (6, 7, 8)


def _matrix_of(pairs: RatedPairs, shape: tuple[int, int], *, replicated: bool) -> csr_matrix:
    """Return ratings in a matrix, (users, items); of replicates, the mean by their weights.

    Ratings that are known only by bounds are left out.
    """
    from scipy.sparse import csr_matrix

    if pairs.bounds is not None:
        pairs = select(pairs, pairs.bounds[:, 0] >= pairs.bounds[:, 1])
    cells = (pairs.users, pairs.items)
    if not replicated:
        return csr_matrix((pairs.values, cells), shape)
    sums = csr_matrix((pairs.weights * pairs.values, cells), shape)
    sums.data /= csr_matrix((pairs.weights, cells), shape).data
    return sums


class BoundedCells(NamedTuple):
    """Cells of a matrix that are known only to lie within bounds, (q,) each, row by row.

    Attributes
    ----------
    row, column : int64
        Positions in the matrix, or users and items of the run.
    lower, upper : float64
        Infinite on an open side.
    weights : float64
        Relative precisions of the ratings.
    """

    row: Int64
    column: Int64
    lower: Float64
    upper: Float64
    weights: Float64


def cells_in_rows(cells: BoundedCells | None, rows: slice) -> BoundedCells | None:
    """Return the cells in some rows, counted from the first of them; None without any."""
    if cells is None:
        return None
    start, stop = np.searchsorted(cells.row, (rows.start, rows.stop))
    if start == stop:
        return None
    found = select(cells, slice(start, stop))
    return found._replace(row=found.row - rows.start)


def _bounded_of(pairs: RatedPairs, n_items: int) -> BoundedCells | None:
    """Return the pairs with one rating, which is known only by bounds; None if all are exact."""
    if pairs.bounds is None:
        return None
    row = pairs.users.astype(np.int64)
    column = pairs.items.astype(np.int64)
    lower, upper = pairs.bounds.T.astype(np.float64)
    cells = BoundedCells(row, column, lower, upper, np.asarray(pairs.weights, np.float64))
    code = row * n_items + column
    _, pair, numbers = np.unique(code, return_inverse=True, return_counts=True)
    return select(cells, (lower < upper) & (numbers[pair] == 1))


class KnownCells:
    """Ratings by user and item: training and test ratings of a run, and later ones.

    Parameters
    ----------
    run : Run
    later : NewRatings, optional
        Ratings that were folded in; those of known users and items replace the ratings of the run.

    Raises
    ------
    InputError
        If the ratings file is missing, or has other ratings.
    """

    def __init__(self, run: Run, later: NewRatings | None = None) -> None:
        self._run = run
        self._later = later
        self._parts: list[csr_matrix] = []
        bounded = []
        shape = (len(run.users), len(run.items))
        with run.open_ratings() as ratings:
            for split in SPLITS:
                pairs = rated_pairs(ratings, split)
                of_split = _bounded_of(pairs, len(run.items))
                if of_split is not None:
                    bounded.append(of_split)
                replicated = ratings.replicates > 0
                self._parts.append(_matrix_of(pairs, shape, replicated=replicated))
        self._bounded: BoundedCells | None = None
        if bounded:
            self._bounded = join(bounded)

    @property
    def number(self) -> int:
        """Number of the ratings of the run."""
        return sum(part.nnz for part in self._parts)

    def of(self, users: Int32, items: Int32) -> Float32:
        """Return the ratings of pairs of users and items, (n, J) float32, NaN where there are none.

        Indices that are not in the run, such as -1, have none.
        """
        n_users, n_items = self._parts[0].shape
        column = _positions_of(items, n_items)
        cells = np.full((len(users), len(items)), np.nan, np.float32)
        for row, user in enumerate(users.tolist()):
            if not 0 <= user < n_users:
                continue
            for part in self._parts:
                begin, end = part.indptr[user : user + 2]
                columns = column[part.indices[begin:end]]
                wanted = columns >= 0
                cells[row, columns[wanted]] = part.data[begin:end][wanted]
        self._set_later(cells, users, items)
        return cells

    def bounded(self, users: Int32, items: Int32) -> BoundedCells | None:
        """Return the cells of a matrix of users and items that are known only by bounds.

        They are in the order of rows. Cells with several measurements, none of which is exact, are
        left out. None if there are no such cells.
        """
        if self._bounded is None:
            return None
        n_users, n_items = self._parts[0].shape
        row = _positions_of(users, n_users)[self._bounded.row]
        column = _positions_of(items, n_items)[self._bounded.column]
        chosen = np.flatnonzero((row >= 0) & (column >= 0))
        if not len(chosen):
            return None
        chosen = chosen[np.lexsort((column[chosen], row[chosen]))]
        found = select(self._bounded, chosen)
        return found._replace(row=row[chosen], column=column[chosen])

    def _set_later(self, cells: Float32, users: Int32, items: Int32) -> None:
        """Set cells of known users and items that were folded in."""
        later = self._later
        if later is None:
            return
        positions = {}
        for entity, names in ((later.entity, later.names), (OTHER[later.entity], later.others)):
            wanted = users if entity == "user" else items
            vocabulary = self._run.vocabulary(entity)
            position_of = _positions_of(wanted, len(vocabulary))
            positions[entity] = position_of[vocabulary.index_of(names)]
        inside = (positions["user"] >= 0) & (positions["item"] >= 0)
        values = later.values.astype(np.float64)
        if later.bounds is not None:
            values[later.bounds[:, 0] < later.bounds[:, 1]] = np.nan
        cells[positions["user"][inside], positions["item"][inside]] = values[inside]


def _positions_of(wanted: Int32, number: int) -> Int64:
    """Return the positions of the rows 0 to `number` - 1 among the wanted ones, (number + 1,).

    Rows that are not wanted have -1, and so has the last element, which stands for no row.
    """
    position_of = np.full(number + 1, -1)
    known = (wanted >= 0) & (wanted < number)
    position_of[wanted[known]] = np.flatnonzero(known)
    return position_of


def as_written(values: Float32) -> Float64:
    """Return the decimal numbers of few digits that have these float32 values.

    Ratings are stored as float32: 0.1 would come back as 0.10000000149.
    """
    numbers = values.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        exponents = np.floor(np.log10(np.abs(numbers)))
    is_open: Array = np.isfinite(exponents)
    for digits in DIGITS:
        at = np.nonzero(is_open)
        decimals = digits - 1 - exponents[at]
        scale = 10.0 ** np.abs(decimals)
        finer = decimals >= 0
        scaled = np.where(finer, numbers[at] * scale, numbers[at] / scale)
        rounded = np.where(finer, np.rint(scaled) / scale, np.rint(scaled) * scale)
        is_same = rounded.astype(np.float32) == values[at]
        found = tuple(index[is_same] for index in at)
        numbers[found] = rounded[is_same]
        is_open[found] = False
    return numbers


def since_the_fit(values: Float64, stored: Float32) -> Float64:
    """Return known cells, with those that were folded in since the fit; overwrites `values`.

    Parameters
    ----------
    values : float64 array
        Cells as they were given to the fit.
    stored : float32 array of this shape
        Known cells now; NaN in others.
    """
    is_known = ~np.isnan(stored)
    values[~is_known] = np.nan
    changed = is_known & (values.astype(np.float32) != stored)
    values[changed] = as_written(stored[changed])
    return values
