"""Finds values of ratings that probably mean "not rated", such as 99 among stars from 1 to 5."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dsgmcmc.settings import named
from dsgmcmc.tables.usual import joined
from dsgmcmc.types import Array

LEAST_SHARE = 0.01  # of the ratings, at a code that is not usual
LEAST_RATINGS = 5  # at a code that is not usual
LEAST_LEVELS = 3  # of a scale above zeros
MOST_LEVELS = 25
_MOST_CODES = 5  # at one end
_FAR = 10  # gaps of the other ratings, beyond which a usual code may be rare, and a group unusual
_FEW = 20  # positive values from which their gaps are known
#: Usual codes, with either sign, and those below 0.
_USUAL = {8, 9, 77, 88, 97, 98, 99, 777, 888, 997, 998, 999, 9997, 9998, 9999, 99999}
_USUAL_BELOW = {-1, -2, -7, *(-code for code in _USUAL)}


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
        text = joined(values)
        number = f"{self.ratings:,} ratings"
        are = "are"
        if self.ratings == 1:
            number = "1 rating"
            are = "is"
        share = f"{self.share:.0%}" if self.share >= LEAST_SHARE else f"{self.share:.2%}"
        means = "probably means" if len(values) == 1 else "probably mean"
        return (
            f"{number} ({share}) {are} {text}, apart from all others: {text} {means} not rated, but"
            f" a model would learn from these ratings; {named('missing')}={','.join(values)} leaves"
            " them out"
        )


def find_codes(values: Array, counts: Array) -> Codes:
    """Find codes among the distinct values of ratings.

    Codes are up to five values at an end of the scale. They stand apart from the others
    (`_stand_apart`), or are zeros: far more frequent than the lowest of few levels above them
    (`_is_pile`), or far below other measurements (`_is_far_below`).

    Parameters
    ----------
    values : (R,) array
        The distinct values, ascending.
    counts : (R,) array
        Number of ratings at each value.
    """
    total = counts.sum()
    least = max(LEAST_SHARE * total, LEAST_RATINGS)
    # codes at one end are left out when the gaps of the other end are judged
    n_high = _count_codes(values[::-1], counts[::-1], least)
    n_low = _count_codes(values[: len(values) - n_high], counts[: len(values) - n_high], least)
    if not n_high:
        n_high = _count_codes(values[n_low:][::-1], counts[n_low:][::-1], least)
    end = len(values) - n_high
    is_frequent_zero = not n_low and values[0] == 0 and counts[0] >= least
    if is_frequent_zero and (_is_pile(counts[:end]) or _is_far_below(values[1:end])):
        n_low = 1
    found = [*range(n_low), *range(end, len(values))]
    ratings = int(counts[found].sum())
    return Codes([float(values[k]) for k in found], ratings, float(ratings / total))


class _Levels(NamedTuple):
    """Distinct values of ratings, (R,), and the number of ratings at each, (R,)."""

    values: Array
    counts: Array


def _count_codes(values: Array, counts: Array, least: float) -> int:
    """Return how many values are codes, from the first one on, which is the end of the scale."""
    for k in range(min(_MOST_CODES, len(values) - 2), 0, -1):
        codes = _Levels(values[:k], counts[:k])
        others = _Levels(values[k:], counts[k:])
        if _stand_apart(codes, others, least):
            return k
    return 0


def _stand_apart(codes: _Levels, others: _Levels, least: float) -> bool:
    """Whether values at an end of the scale, from the end on, stand apart from all others.

    Their gap to the others is at least twice as wide as every gap between those; or they are usual
    codes, and it is wider than those; or a usual code is alone below 0. Codes that fewer than
    `least` ratings have must be usual, and several ones usual or far away. Rare codes near the
    others must be at an abrupt end of a scale of few levels, unlike counts in a tail.
    """
    gap = abs(codes.values[-1] - others.values[0])
    widest = np.abs(np.diff(others.values)).max()
    several = len(codes.values) > 1
    is_usual = all(value in _USUAL or value in _USUAL_BELOW for value in codes.values)
    alone_below = not several and codes.values[0] < 0 <= others.values[0]
    if (codes.counts >= least).all():
        if several and not is_usual:
            return bool(gap >= _FAR * widest)
        if gap >= 2 * widest:
            return True
        if not is_usual:
            return False
        if len(others.values) == 2:  # votes may be -1, 0, 1 or 1, 6, and 9 for no vote
            return bool(abs(codes.values[0]) > 1 and gap != widest)
        return bool(gap > widest or alone_below)
    if not is_usual or len(others.values) < LEAST_LEVELS:
        return False
    if gap >= _FAR * widest:
        return True
    is_abrupt = 5 * others.counts[0] >= others.counts.mean()
    if len(others.values) > MOST_LEVELS or not is_abrupt:
        return False
    return bool(gap >= 2 * widest or alone_below)


def _is_pile(counts: Sequence[int] | Array) -> bool:
    """Whether zeros, the first of the levels, are far more frequent than the level above them.

    They are if 3 to 25 levels are above them, and they are more than twice as frequent as the next
    level, which is not the most frequent one. Counts fall from the first level above 0, and the
    next level of a measurement is near.
    """
    above = counts[1:]
    if not LEAST_LEVELS <= len(above) <= MOST_LEVELS:
        return False
    return bool(counts[0] > 2 * above[0] and above[0] < max(above))


def _is_far_below(values: Array) -> bool:
    """Whether 0 is far below positive values, (R,) ascending.

    Counts, amounts and durations begin near 0; intensities begin where they can be measured. The
    least value is far away if it is a hundred units of rounded values or more, or a tenth of the
    lower quartile and 20 of the gaps up to there.
    """
    if len(values) < _FEW:
        return False
    for unit in (1.0, 0.1, 0.01):
        if np.allclose(values, np.round(values / unit) * unit, rtol=1e-9, atol=1e-9 * unit):
            return bool(values[0] >= 100 * unit)
    lowest = values[: max(_FEW // 2, len(values) // 4)]
    gap = np.median(np.diff(lowest))
    return bool(values[0] >= max(20 * gap, lowest[-1] / 10))
