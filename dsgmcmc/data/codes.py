"""Finds values of ratings that probably mean "not rated", such as 99 among stars from 1 to 5."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dsgmcmc.settings import named
from dsgmcmc.types import Array

LEAST_SHARE = 0.01  # of the ratings, at a code
LEAST_RATINGS = 5  # at a code
LEAST_LEVELS = 3  # of a scale above zeros
MOST_LEVELS = 25
_USUAL = (-1, -9, -99, 9, 99, 999, 9999)


class Codes(NamedTuple):
    """Values that probably mean "not rated"; number and share of the ratings that have them."""

    values: list[float]
    ratings: int
    share: float

    def __str__(self) -> str:
        """Return a hint for users, or an empty text without values."""
        if not self.values:
            return ""
        values = [f"{value:.9g}" for value in self.values]
        text = " and ".join(values)
        means = "probably means" if len(values) == 1 else "probably mean"
        return (
            f"{self.ratings:,} ratings ({self.share:.0%}) are {text}, apart from all others: {text}"
            f" {means} not rated, but a model would learn from these ratings;"
            f" {named('missing')}={','.join(values)} leaves them out"
        )


def find_codes(values: Array, counts: Array) -> Codes:
    """Find codes among the distinct values of ratings.

    A code is the lowest or the highest value, and has at least 1 % of the ratings. It stands apart
    from the others: its gap to them is at least twice as wide as every gap between them; or it is a
    usual code, such as 999, and its gap is wider than theirs; or it is a usual code below 0, and no
    other value is. A zero is also a code if 3 to 25 levels are above it, and zeros are more than
    twice as frequent as the next level, which is not the most frequent one. Counts fall from the
    first level above 0, and the next level of a measurement is near.

    Parameters
    ----------
    values : (R,) array
        The distinct values, ascending.
    counts : (R,) array
        Number of ratings at each value.
    """
    total = counts.sum()
    least = max(LEAST_SHARE * total, LEAST_RATINGS)
    found = []
    lowest = float(values[0])
    pile = lowest == 0 and _is_pile(counts)
    if counts[0] >= least and (pile or _stands_apart(lowest, values[1:])):
        found.append(0)
    if counts[-1] >= least and _stands_apart(float(values[-1]), values[-2::-1]):
        found.append(-1)
    ratings = int(counts[found].sum())
    return Codes([float(values[k]) for k in found], ratings, float(ratings / total))


def _stands_apart(value: float, others: Array) -> bool:
    """Whether a value is far from all others, (R - 1,) from the nearest on."""
    if len(others) < 2:
        return False
    gap = abs(value - others[0])
    widest = np.abs(np.diff(others)).max()
    if gap >= 2 * widest:
        return True
    if value not in _USUAL:
        return False
    if len(others) == 2:  # votes may be -1, 0, 1 or 1, 6, and 9 for no vote
        return bool(abs(value) > 1 and gap != widest)
    return bool(gap > widest or value < 0 <= others[0])


def _is_pile(counts: Sequence[int] | Array) -> bool:
    """Whether zeros, the first of the levels, are far more frequent than the level above them."""
    above = counts[1:]
    if not LEAST_LEVELS <= len(above) <= MOST_LEVELS:
        return False
    return bool(counts[0] > 2 * above[0] and above[0] < max(above))
