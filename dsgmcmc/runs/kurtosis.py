"""Tails of the errors of biases only, with and without scales of rows and columns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dsgmcmc.diagnostics.baselines import BiasesOnly, errors_of
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.types import Array

#: Smallest squared scale, which the scale of rows without errors is.
TINY = 1e-300

#: Rows get noise levels of their own if the kurtosis of the errors of biases only is at least so
#: many times that of the errors divided by the scales of their rows and columns, and the latter is
#: about 3, that of a normal distribution. A few rows then have most of the squared errors, and
#: under a common noise level the factors fit their noise. Where single ratings make the tails,
#: noise levels of rows predict worse. docs/evidence/robust.md has the errors.
LEAST_KURTOSIS_RATIO = 2.5
LARGEST_KURTOSIS = 4.0
#: Passes over rows, then columns, that estimate their scales.
SCALE_PASSES = 2


class Kurtosis(NamedTuple):
    """Kurtosis of errors, and of errors divided by the scales of their rows and columns."""

    of_errors: float
    of_scaled: float

    @property
    def needs_own_noise(self) -> bool:
        """Whether rows of different scales, and not single ratings, make the tails."""
        is_explained = self.of_errors >= LEAST_KURTOSIS_RATIO * self.of_scaled
        return is_explained and self.of_scaled <= LARGEST_KURTOSIS


def kurtosis(ratings: Ratings, biases: BiasesOnly) -> Kurtosis:
    """Return the kurtosis of the errors of biases only on the exact training ratings.

    The squared scales of rows and columns multiply. Each is the mean square of its errors over the
    other scales, which are 1 at first.
    """
    scales = (np.ones(ratings.n_rows), np.ones(ratings.n_cols))
    for side in SCALE_PASSES * (0, 1):
        sums = np.zeros_like(scales[side])
        counts = np.zeros_like(sums)
        for rows, columns, errors in errors_of(ratings, biases):
            owners: list[Array] = [rows, columns]
            others = scales[1 - side][owners[1 - side]]
            sums += np.bincount(owners[side], np.square(errors) / others, len(sums))
            counts += np.bincount(owners[side], minlength=len(sums))
        scales[side][:] = np.maximum(sums / np.maximum(counts, 1), TINY)
    moments = np.zeros((2, 2))  # sums of squares and of fourth powers, of both kinds of errors
    for rows, columns, errors in errors_of(ratings, biases):
        square = np.square(errors)
        scaled = square / (scales[0][rows] * scales[1][columns])
        moments += [[kind.sum(), kind @ kind] for kind in (square, scaled)]
    if not np.all(moments > 0):
        return Kurtosis(1.0, 1.0)
    of_errors, of_scaled = counts.sum() * moments[:, 1] / np.square(moments[:, 0])
    return Kurtosis(float(of_errors), float(of_scaled))
