"""Changes of variables between ratings and what a likelihood models (setting ``scale``).

`dsgmcmc.model.log_scale` has the equations.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Literal

import numpy as np
from typing_extensions import override

from dsgmcmc.kernels.compact_ratings import count_values
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.format import Bounds, RowRatings, Split
from dsgmcmc.types import Array, Float64, Int64

Scale = Literal["identity", "log", "log1p"]

LARGEST = 88.0  # largest logarithm whose exponential float32 represents, rounded down


class Transform:
    """The identity: a likelihood models ratings as they are."""

    @property
    def name(self) -> Scale:
        """Value of the setting ``scale``."""
        return "identity"

    @property
    def point_name(self) -> str:
        """What predictions are: the mean of a distribution or, if it has none, its median."""
        return "mean"

    def scaled(self, values: Array) -> Array:
        """Ratings on the scale on which the likelihood models them, in the type of `values`."""
        return values

    def scaled_bounds(self, bounds: Array) -> Array:
        """Bounds of ratings on the scale of the likelihood, in the type of `bounds`."""
        return bounds

    def view(self, ratings: Ratings) -> Ratings:
        """An open file whose ratings are on the likelihood's scale."""
        return ratings

    def point(self, mean: Array, variance: Array | float) -> Array:
        """Predictions, given means and variances of predictive distributions on the scale."""
        return mean


@dataclass(frozen=True)
class Logarithm(Transform):
    """Logarithms y = log(x + shift) of ratings x.

    Attributes
    ----------
    shift : float
        0, or 1 for counts.
    has_mean : bool
        Whether the exponential of y has an expectation.
    """

    shift: float
    has_mean: bool

    @property
    @override
    def name(self) -> Scale:
        if self.shift:
            return "log1p"
        return "log"

    @property
    @override
    def point_name(self) -> str:
        if self.has_mean:
            return "mean"
        return "median"

    @property
    def possible(self) -> str:
        """Which ratings have a logarithm, in words."""
        if self.shift:
            return "whole numbers from 0 on"
        return "above 0"

    def excluded(self, values: Array) -> Array:
        """Which ratings are not `possible`."""
        if self.shift:
            return np.asarray((values < 0) | (values % 1 != 0))
        return np.asarray(values <= 0)

    @override
    def scaled(self, values: Array) -> Array:
        return np.log(np.asarray(values, np.float64) + self.shift).astype(values.dtype)

    @override
    def scaled_bounds(self, bounds: Array) -> Array:
        """Bounds on this scale; those below 0 become that of 0, without `shift` minus infinity."""
        with np.errstate(divide="ignore"):
            return self.scaled(np.maximum(bounds, 0))

    @override
    def view(self, ratings: Ratings) -> Ratings:
        """An open file whose ratings are logarithms: a copy of `ratings` with other values."""

        def slab(split: Split, start: int, stop: int) -> RowRatings:
            rows = ratings.slab(split, start, stop)
            bounds = rows.bounds
            if bounds is not None:
                bounds = Bounds(*map(self.scaled_bounds, bounds))
            return rows._replace(values=self.scaled(rows.values), bounds=bounds)

        def levels(limit: int) -> Float64 | None:
            values = ratings.levels(limit)
            if values is None:
                return None
            return self.scaled(values)

        def count_levels() -> tuple[Float64, Int64] | None:
            return count_values(view.values("train"))

        minimum, maximum = self.scaled(np.array([ratings.minimum, ratings.maximum])).tolist()
        view = copy(ratings)
        vars(view).update(
            slab=slab,
            levels=levels,
            count_levels=count_levels,
            minimum=minimum,
            maximum=maximum,
            recorded=ratings,
        )
        total = sum(float(values.sum(dtype=np.float64)) for values in view.values("train"))
        view.mean = total / ratings.nnz
        return view

    @override
    def point(self, mean: Array, variance: Array | float) -> Array:
        if self.has_mean:
            mean = mean + variance / 2
        return exponential(mean, self.shift)


def exponential(y: Array, shift: float = 0.0) -> Array:
    """The rating whose logarithm is y, at least 0."""
    return np.asarray(np.maximum(np.exp(np.minimum(y, y.dtype.type(LARGEST))) - shift, 0.0))
