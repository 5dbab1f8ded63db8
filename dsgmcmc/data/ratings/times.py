"""Temporal order of the ratings of each row and of each column, in a ratings file.

The *place* of a rating is its number, from 0, among all ratings of its row (or column), training and test together, in
the order of time; its *page* is the number of the second that it was given in, among the seconds of that row. Times
themselves are not kept. Ratings of one second are in the order of the other side, which is a random one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.data.ratings.features import SIDES, Side
from dsgmcmc.data.ratings.format import SPLITS, Split
from dsgmcmc.types import Array, Int32, Int64


class Times(NamedTuple):
    """Where some ratings stand among those of their rows, or of their columns: (m,) int32 each.

    For whole rows or columns, these are how many places and pages there are: (n,) int32 each.
    """

    place: Int32
    page: Int32


def times_names(where: str, side: Side) -> tuple[str, ...]:
    """Data sets of the places and pages of a part's ratings; where there is no part, of how many there are."""
    return tuple(f"{where}/times/{side}/{what}" if where else f"{side}/times/{what}" for what in Times._fields)


class TimesToWrite:
    """The places and pages of a file that is being written; it counts how many each row and column has."""

    def __init__(self, n_rows: int, n_cols: int) -> None:
        sizes: dict[Side, int] = {"rows": n_rows, "cols": n_cols}
        self._counts = {side: Times(np.zeros(n, np.int32), np.zeros(n, np.int32)) for side, n in sizes.items()}

    def sizes(self, lengths: tuple[int, int]) -> dict[str, int]:
        """Length of every data set, given the numbers of training and test ratings."""
        result = {name: len(counts) for name, counts in self.counts()}
        for part, length in zip(SPLITS, lengths, strict=True):
            result |= {name: length for side in SIDES for name in times_names(part, side)}
        return result

    def of(self, part: Split, owners: Mapping[Side, Array], times: Mapping[Side, Times]) -> Iterator[tuple[str, Int32]]:
        """Count the places and pages of some ratings of these rows and columns, and give them by data set."""
        for side, own in owners.items():
            for name, numbers, counts in zip(times_names(part, side), times[side], self._counts[side], strict=True):
                np.maximum.at(counts, own, numbers + 1)
                yield name, numbers

    def counts(self) -> Iterator[tuple[str, Int32]]:
        """How many places and pages each row and each column has, by data set."""
        for side, counts in self._counts.items():
            yield from zip(times_names("", side), counts, strict=True)


class StoredTimes:
    """The places and pages in an open ratings file, of rows whose ratings begin at `indptr` by part.

    `dataset` gives a data set of a name, a length and a type once it is known to be sound; `columns` gives the columns
    of the ratings in some rows of a part; `wrong` makes an InputError of what is wrong, which is raised where they
    contradict themselves.

    Attributes
    ----------
    counts : dict of side to Times
        How many places and pages each row, or column, has.
    """

    def __init__(
        self,
        indptr: Mapping[str, Int64],
        n_cols: int,
        dataset: Callable[[str, int | None, type | None], Any],
        columns: Callable[[Split, int, int], Int32],
        wrong: Callable[[str], Exception],
    ) -> None:
        self._indptr, self._columns, self._wrong = indptr, columns, wrong
        self.counts: dict[Side, Times] = {}
        self._data: dict[str, Any] = {}
        lengths = {part: int(indptr[part][-1]) for part in SPLITS}
        for side, n in zip(SIDES, (len(indptr["train"]) - 1, n_cols), strict=True):
            place, page = (dataset(name, n, np.int32)[:] for name in times_names("", side))
            if place.min() < 0 or page.min() < 0 or (page > place).any():
                raise wrong(f"/{side}/times has numbers of places or pages that cannot be")
            if place.sum(dtype=np.int64) != sum(lengths.values()):
                raise wrong(f"/{side}/times/place does not add up to {sum(lengths.values())}")
            self.counts[side] = Times(place, page)
            for part, length in lengths.items():
                self._data |= {name: dataset(name, length, np.int32) for name in times_names(part, side)}

    def slab(self, part: Split, side: Side, start: int, stop: int) -> Times:
        """Read where the ratings in rows `start` to `stop` of a part stand among those of their rows, or columns.

        Raises InputError if they cannot be read, or stand outside what their row has.
        """
        indptr = self._indptr[part][start : stop + 1]
        owners = self._columns(part, start, stop)
        if side == "rows":
            owners = np.repeat(np.arange(start, stop, dtype=np.int32), np.diff(indptr))
        arrays = []
        for name, counts in zip(times_names(part, side), self.counts[side], strict=True):
            try:
                arrays.append(self._data[name][int(indptr[0]) : int(indptr[-1])])
            except (OSError, RuntimeError, ValueError) as error:
                raise self._wrong(f"/{name} cannot be read ({error})") from error
            if len(owners) and (arrays[-1].min() < 0 or (arrays[-1] >= counts[owners]).any()):
                raise self._wrong(f"/{name} has numbers outside those of their {side}")
        return Times(*arrays)

    def datasets(self, part: Split, start: int, stop: int) -> Iterator[tuple[str, Int32]]:
        """All that is stored of the ratings in some rows of a part, by data set; raises as `slab`."""
        for side in SIDES:
            yield from zip(times_names(part, side), self.slab(part, side, start, stop), strict=True)
