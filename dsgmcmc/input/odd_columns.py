"""Names columns of a matrix that may be no items: numbers of rows, sums, flags, other magnitudes.

A model would fill holes from them as from any item, and worse.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.settings import named
from dsgmcmc.tables.usual import shortened
from dsgmcmc.types import Float64, Mask

NOTHING = "none"  # as the columns that are left out: all are items
#: Cells that are looked at, in the first rows.
CELLS = 250_000
_FEWEST = 12  # rows from which a column is judged
_LEAST = 4  # columns from which one is compared with the others
_FAR = 5.0  # ratio of the size of a column to the usual size
_AMOUNTS = 0.5  # sd of the logarithms of amounts in a column
_UNITS = 30.0  # ratio of the sds of columns in different units
_FLAG = re.compile(r"[ _.-]?(flag|flags|qc|qf|quality)")


class OddColumns(NamedTuple):
    """Columns that may be no items.

    Attributes
    ----------
    sentences : list of str
        What is odd, for users.
    explains_codes : bool
        Whether a column has another magnitude than the others, one value, or flags, so that values
        that stand apart are no codes for "not rated".
    """

    sentences: list[str]
    explains_codes: bool = False


def find_odd_columns(
    values: Float64, labels: Sequence[object], ignored: Sequence[str] = ()
) -> OddColumns:
    """Find columns of a matrix (n, J) that may be no items; NaN where a cell is not rated.

    There are none if users say so: `ignored` has `NOTHING`.
    """
    if NOTHING in ignored:
        return OddColumns([])
    n, width = values.shape
    values = values[: max(_FEWEST, CELLS // max(width, 1))]
    known = np.isfinite(values)
    if n < _FEWEST or width < 2:
        return OddColumns([])
    columns = _Columns(values, known)
    other_size = columns.have_other_size()
    constant = columns.are_constant()
    flags = _are_flags(labels)
    reasons = {
        "has a different whole number in every row, as no other column has": columns.are_numbers(),
        "is the sum of the others": columns.are_sums(),
        "is the mean of the others": columns.are_means(),
        "has another magnitude than the others": other_size,
        "has one value alone": constant,
        "may have flags of another column": flags,
    }
    sentences = []
    named_before = np.zeros(width, bool)
    for reason, mask in reasons.items():
        found = np.flatnonzero(mask & ~named_before)
        named_before |= mask
        for k in found[:3].tolist():
            option = f"{named('ignore')} {labels[k]}"
            sentence = f"column {labels[k]} {reason}: if it is no item, {option} leaves it out"
            if mask is other_size:
                sentence += "; if it has another unit, scale the columns first"
            sentences.append(sentence)
    if not other_size.any() and columns.have_units():
        sentences.append(
            "the columns have different magnitudes, and one prior is for all: scale them first if"
            " they are in different units"
        )
    return OddColumns(sentences, bool((other_size | constant | flags).any()))


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
    """The columns of a matrix (n, J), given which cells are known."""

    def __init__(self, values: Float64, known: Mask) -> None:
        self.values = np.where(known, values, 0.0)
        self.known = known
        self.counts = known.sum(axis=0)
        self.is_judged = self.counts >= _FEWEST
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
        for k in np.flatnonzero(is_full & ~np.any(self.values % 1, axis=0)).tolist():
            mask[k] = len(np.unique(self.values[:, k])) == len(self.values)
        return mask if mask.sum() == 1 and self.width >= _LEAST else np.zeros(self.width, bool)

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

    def _sizes(self) -> Float64:
        """Return the upper quartiles of absolute values, (J,), which a few codes do not move."""
        ordered = np.sort(np.where(self.known, np.abs(self.values), np.inf), axis=0)
        position = 3 * np.maximum(self.counts - 1, 0) // 4
        quartiles = np.take_along_axis(ordered, position[None], axis=0)[0]
        return np.where(self.counts > 0, quartiles, 0.0)

    def have_other_size(self) -> Mask:
        """Return which columns have a size far from that of most others, which are alike."""
        sizes = self._sizes()
        usable = self._may_compare() & (sizes > 0)
        mask = np.zeros(self.width, bool)
        if usable.sum() < _LEAST:
            return mask
        logs = np.log(sizes[usable])
        distance = np.abs(logs - np.median(logs))
        usual = float(np.quantile(distance, 0.7))
        mask[usable] = (distance > np.log(_FAR)) & (distance > 3 * usual)
        if self._are_counts() and np.median(self.high) > 1000:
            return np.zeros(self.width, bool)
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
