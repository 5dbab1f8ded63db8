"""Refuses columns of a matrix that may be no items: row numbers, sums, flags, other magnitudes.

A model would fill holes from them as from any item, and worse.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.settings import named
from dsgmcmc.tables.usual import shortened
from dsgmcmc.types import Float64, Mask

NOTHING = "none"  # as the columns that are left out: all are items
#: Cells that are looked at, in the first rows.
CELLS = 250_000
_FEWEST = 12  # rows from which a column is judged
_FEWEST_OF_MANY = 5  # the same beside many columns of decimals
_MANY = 12  # columns of decimals
_LEAST = 4  # columns from which one is compared with the others
_FAR = 5.0  # ratio of the size of a column to the usual size
_AMOUNTS = 0.5  # sd of the logarithms of amounts in a column
_UNITS = 30.0  # ratio of the sds of columns in different units
_SHOWN = 3  # columns with one value that are named
_FLAG = re.compile(r"[ _.-]?(flag|flags|qc|qf|quality)")


class OddColumns(NamedTuple):
    """Columns that may be no items.

    Attributes
    ----------
    reasons : dict of str to str
        What is odd about columns, by label.
    have_units : bool
        Whether columns differ as those of different units do.
    constant : list of str
        Columns with one value alone, which do no harm.
    explains_codes : bool
        Whether a column has another magnitude than the others, one value, or flags, so that values
        that stand apart are no codes for "not rated".
    """

    reasons: Mapping[str, str] = MappingProxyType({})
    have_units: bool = False
    constant: Sequence[str] = ()
    explains_codes: bool = False

    @property
    def doubts(self) -> list[str]:
        """Sentences on columns that do no harm."""
        return [
            f"column {label} has one value alone: if it is no item, {named('ignore')} {label}"
            " leaves it out"
            for label in self.constant[:_SHOWN]
        ]

    def refuse(self, path: Path) -> None:
        """Raise InputError, with the options for both readings, if columns may do harm."""
        everything = f"{named('ignore')} {NOTHING}"
        if self.reasons:
            found = [f"column {label} {reason}" for label, reason in self.reasons.items()]
            raise InputError(
                f"{path}: {'; '.join(found)}: leave out what is no item by {named('ignore')}"
                f" {','.join(self.reasons)}; scale a column in another unit first; if all columns"
                f" are items in one unit, {everything} says so"
            )
        if self.have_units:
            raise InputError(
                f"{path}: the columns have different magnitudes, and one prior is for all: scale"
                f" them first if they are in different units; if they are in one unit, {everything}"
                " says so"
            )


def find_odd_columns(values: Float64, labels: Sequence[object]) -> OddColumns:
    """Find columns of a matrix (n, J) that may be no items; NaN where a cell is not rated."""
    n, width = values.shape
    values = values[: max(_FEWEST, CELLS // max(width, 1))]
    known = np.isfinite(values)
    fewest = _fewest_rows(values)
    if n < fewest or width < 2:
        return OddColumns()
    columns = _Columns(values, known, fewest)
    other_size = columns.have_other_size()
    constant = columns.are_constant()
    flags = _are_flags(labels)
    masks = {
        "has a different whole number in every row, as no other column has": columns.are_numbers(),
        "is the sum of the others": columns.are_sums(),
        "is the mean of the others": columns.are_means(),
        "has another magnitude than the others": other_size,
        "has 0 and 1 alone, and the others have decimals": columns.are_checks(),
        "may have flags of another column": flags,
    }
    reasons: dict[str, str] = {}
    for reason, mask in masks.items():
        for k in np.flatnonzero(mask).tolist():
            reasons.setdefault(str(labels[k]), reason)
    if str(labels[0]) in reasons and columns.are_different(0):
        reasons[str(labels[0])] += (
            f" (if it names the users, {named('columns')} user={labels[0]} says so)"
        )
    return OddColumns(
        reasons,
        have_units=columns.have_units(),
        constant=[str(labels[k]) for k in np.flatnonzero(constant).tolist()],
        explains_codes=bool((other_size | constant | flags).any()),
    )


def _fewest_rows(values: Float64) -> int:
    """Return the number of rows from which a column of a matrix (n, J) is judged."""
    n, width = values.shape
    if n >= _FEWEST:
        return _FEWEST
    fractions = np.where(np.isfinite(values), values, 0.0) % 1
    n_decimals = int(np.count_nonzero(fractions.max(axis=0, initial=0.0)))
    if n_decimals >= _MANY and 2 * n_decimals > width:
        return _FEWEST_OF_MANY
    return _FEWEST


def describe_ignored(labels: Sequence[object]) -> str:
    """Say which columns were left out; an empty text without any."""
    if not labels:
        return ""
    return f"; left out: {shortened([str(label) for label in labels])}"


def _are_flags(labels: Sequence[object]) -> Mask:
    """Return which columns have the name of another one, and a word for flags."""
    names = [str(label).lower() for label in labels]
    known = set(names)
    mask = np.zeros(len(names), bool)
    for k, name in enumerate(names):
        found = _FLAG.search(name)
        mask[k] = found is not None and found.end() == len(name) and name[: found.start()] in known
    return mask


class _Columns:
    """The columns of a matrix (n, J), given which cells are known.

    Columns are judged that have `fewest` known cells or more.
    """

    def __init__(self, values: Float64, known: Mask, fewest: int) -> None:
        self.values = np.where(known, values, 0.0)
        self.known = known
        self.counts = known.sum(axis=0)
        self.is_judged = self.counts >= fewest
        self.low = np.where(known, values, np.inf).min(axis=0)
        self.high = np.where(known, values, -np.inf).max(axis=0)

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.counts)

    def are_numbers(self) -> Mask:
        """Return the one column with different whole numbers in all rows, if there is one alone."""
        is_full = self.is_judged & self.known.all(axis=0)
        mask = np.zeros(self.width, bool)
        for k in np.flatnonzero(is_full).tolist():
            mask[k] = self.are_different(k)
        return mask if mask.sum() == 1 and self.width >= _LEAST else np.zeros(self.width, bool)

    def are_different(self, k: int) -> bool:
        """Whether the known numbers of a column are whole, and each occurs once."""
        values = self.values[self.known[:, k], k]
        return bool(not np.any(values % 1) and len(np.unique(values)) == len(values))

    def are_checks(self) -> Mask:
        """Return which few columns have 0 and 1 alone, where all others have decimals."""
        are_truth = (self.low == 0) & (self.high == 1) & ~np.any(self.values % 1, axis=0)
        have_decimals = np.any(self.values % 1, axis=0)
        if 2 * have_decimals.sum() <= self.width or not np.all(are_truth | have_decimals):
            return np.zeros(self.width, bool)
        return np.asarray(are_truth & self._may_compare())

    def are_sums(self) -> Mask:
        """Return which columns are sums of the others."""
        others = self.values.sum(axis=1, keepdims=True) - self.values
        return self._are_close(others)

    def are_means(self) -> Mask:
        """Return which columns are means of the others, which may be rounded."""
        number = self.known.sum(axis=1, keepdims=True) - self.known
        others = self.values.sum(axis=1, keepdims=True) - self.values
        return self._are_close(others / np.maximum(number, 1))

    def _are_close(self, expected: Float64) -> Mask:
        """Return which columns are as expected, but for their rounding, where they are known."""
        width = np.where(self.high > self.low, self.high - self.low, 0.0)
        tolerance = 1e-6 * width
        for decimals in range(4):
            rounded = np.isclose(
                self.values, np.round(self.values, decimals), rtol=1e-12, atol=1e-9
            )
            step = 0.51 * 10.0**-decimals
            usable = rounded.all(axis=0) & (step <= 0.01 * width)
            tolerance = np.where(usable, np.maximum(tolerance, step), tolerance)
        is_close = np.abs(self.values - expected) <= tolerance
        all_close = (is_close | ~self.known).all(axis=0)
        return np.asarray(all_close & self._may_compare() & (self.high > self.low))

    def _may_compare(self) -> Mask:
        return np.asarray(self.is_judged & (self.width >= _LEAST))

    def _sizes(self, quarter: int) -> Float64:
        """Return quartiles of absolute values, (J,): the median, 2, or the upper ones, 3."""
        ordered = np.sort(np.where(self.known, np.abs(self.values), np.inf), axis=0)
        position = quarter * np.maximum(self.counts - 1, 0) // 4
        quartiles = np.take_along_axis(ordered, position[None], axis=0)[0]
        return np.where(self.counts > 0, quartiles, 0.0)

    def have_other_size(self) -> Mask:
        """Return which columns have a size far from that of most others, which are alike.

        Both their medians and their upper quartiles are far, as codes for "not rated" do not move
        one of these.
        """
        if self._are_counts() and np.median(self.high) > 1000:
            return np.zeros(self.width, bool)
        return self._are_far(self._sizes(2)) & self._are_far(self._sizes(3))

    def _are_far(self, sizes: Float64) -> Mask:
        """Return which sizes are far from most others, which are alike."""
        usable = self._may_compare() & (sizes > 0)
        mask = np.zeros(self.width, bool)
        if usable.sum() < _LEAST:
            return mask
        logs = np.log(sizes[usable])
        distance = np.abs(logs - np.median(logs))
        usual = float(np.quantile(distance, 0.7))
        mask[usable] = (distance > np.log(_FAR)) & (distance > 3 * usual)
        return mask

    def _are_counts(self) -> bool:
        """Whether all numbers are counts, whose columns differ by nature."""
        return bool(not np.any(self.values % 1) and self.low.min() >= 0)

    def _are_amounts(self) -> bool:
        """Whether all numbers are amounts, which differ by factors within their columns, too."""
        if not self.low.min() > 0:
            return False
        logs = np.log(np.where(self.known, self.values, 1.0))
        mean = logs.sum(axis=0) / np.maximum(self.counts, 1)
        square = np.where(self.known, (logs - mean) ** 2, 0.0).sum(axis=0)
        return bool(np.median(np.sqrt(square / np.maximum(self.counts, 1))) > _AMOUNTS)

    def are_constant(self) -> Mask:
        """Return which columns have one value alone, where most others have several."""
        constant = (self.low == self.high) & self._may_compare()
        if 2 * constant.sum() >= self.width:
            return np.zeros(self.width, bool)
        return np.asarray(constant)

    def have_units(self) -> bool:
        """Whether sds of many columns differ as those of different units do."""
        usable = self._may_compare() & (self.high > self.low)
        if usable.sum() < _LEAST or self._are_counts() or self._are_amounts():
            return False
        mean = self.values.sum(axis=0) / np.maximum(self.counts, 1)
        square = np.where(self.known, (self.values - mean) ** 2, 0.0).sum(axis=0)
        sds = np.sqrt(square / np.maximum(self.counts, 1))[usable]
        return bool(np.quantile(sds, 0.9) > _UNITS * np.quantile(sds, 0.1))


def parse_ignored(ignore: Any) -> tuple[str, ...]:
    """Return the columns that users leave out, as texts: text with commas, or a sequence, or None.

    `NOTHING` says that all columns are items.
    """
    if ignore is None:
        return ()
    if isinstance(ignore, str):
        return tuple(name.strip() for name in ignore.split(","))
    return tuple(str(name) for name in ignore)
