"""What a run drew: a saved draw, and the moments of a chain, by users and items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dsgmcmc.types import Float32, Float64

KINDS = ("user", "item")
MOMENTS = ("mean", "variance")

KEPT_BYTES = 2 << 30  # of draws that are kept in memory
KEPT_FROM = 3  # the read from which on a draw is kept
KEPT_AT_ONCE = 20 << 20  # of draws that are so small that they are kept from the first read on


@dataclass(frozen=True)
class Prior:
    """Prior of a factor's rows: mean (D,) and covariance (D, D), float64."""

    mean: Float64
    covariance: Float64


def priors_of(small: Mapping[str, Float64], kind: str) -> tuple[Prior, Prior]:
    """Prior of the users or the items, and of one that nothing is known of, from the small parameters of a draw."""
    mean, precision = small[f"{kind}.mean"], small[f"{kind}.precision"]
    covariance = (np.diag(1 / precision) if precision.ndim == 1 else np.linalg.inv(precision)).astype(np.float64)
    prior = Prior(mean, covariance)
    if f"{kind}.implicit.mean" not in small:
        return prior, prior
    shifted = mean + small[f"{kind}.implicit.mean"]
    return prior, Prior(shifted, covariance + np.diag(small[f"{kind}.implicit.variance"]))


@dataclass(frozen=True)
class Effects:
    """What features do to the prior means of a factor's rows.

    Attributes
    ----------
    effects : (F, D) float64
        B: a feature's effect on every column of a row; on the last it is in units of the ratings.
    strength : (groups,) float64
        beta, of the groups in the order in which they first occur.
    """

    effects: Float64
    strength: Float64


def time_variance(small: Mapping[str, Float64]) -> Float64:
    """Variance of the effects of all levels of time together, from the small parameters of a draw, or of many."""
    found: Float64 = (1 / small["time.precision"]).sum(axis=-1) if "time.precision" in small else np.zeros(())
    return found


def effects_of(small: Mapping[str, Float64]) -> dict[str, Effects]:
    """What features do, by kind, from the small parameters of a draw."""
    return {
        kind: Effects(small[f"{kind}.features.effects"], small[f"{kind}.features.strength"])
        for kind in KINDS
        if f"{kind}.features.effects" in small
    }


@dataclass(frozen=True)
class Draw:
    """One saved draw.

    Attributes
    ----------
    chain, iteration : int
    theta : dict of kind to (n, D) float32
        Factors of the users and of the items; the last column is the bias, if the model has biases.
    tau : float
        Precision of the noise.
    noise_scale : dict of kind to (n,) float32
        g of heteroscedastic noise: the variance of a rating is 1 / (tau g_user g_item). All 1 if the noise is shared.
    prior : dict of kind to Prior
        Of a row whose prior mean has nothing besides m.
    unseen : dict of kind to Prior
        Of a row that nothing is known of.
    nu : dict of kind to float
        Degrees of freedom of the prior of `noise_scale`, where it is sampled.
    implicit : dict of kind to (n, D) float32
        What a rating of a user, or of an item, adds to the prior mean of the other side's row; where the model has it.
    features : dict of kind to Effects
        Of features, where they are used.
    thresholds : (R - 1,) float64 or None
        Between levels, where ratings are of levels.
    own_thresholds : (users, R - 1) float32 or None
        Those of every user, where they have their own.
    gap_precision : (R - 2,) float64 or None
        Of the logarithms of their gaps about those of `thresholds`.
    scale_precision : dict of kind to float
        Of log `noise_scale`, where ratings are of levels and users or items use them differently.
    time_variance : float
        Of the effects of all levels of time together, on a predictor of which no group is known; 0 without levels.
    """

    chain: int
    iteration: int
    theta: dict[str, Float32]
    tau: float
    noise_scale: dict[str, Float32]
    prior: dict[str, Prior]
    unseen: dict[str, Prior]
    nu: dict[str, float]
    implicit: dict[str, Float32]
    features: dict[str, Effects]
    scale_precision: dict[str, float]
    thresholds: Float64 | None = None
    time_variance: float = 0.0
    own_thresholds: Float32 | None = None
    gap_precision: Float64 | None = None

    @cached_property
    def inverse_scale(self) -> dict[str, Float32]:
        """1 / g, by kind."""
        return {kind: np.reciprocal(scale) for kind, scale in self.noise_scale.items()}

    @property
    def nbytes(self) -> int:
        """Memory of the factors, of the users' thresholds, and of the noise scales, twice."""
        scales = 2 * sum(scale.nbytes for scale in self.noise_scale.values())
        own = 0 if self.own_thresholds is None else self.own_thresholds.nbytes
        return scales + own + sum(array.nbytes for array in (*self.theta.values(), *self.implicit.values()))


class KeptDraws:
    """Draws of which those that are wanted time and again stay in memory.

    A command of a few pairs or users goes through all draws once or twice: of large ones it has one at a time.

    Parameters
    ----------
    read : callable
        Reads the draw of a number.
    """

    def __init__(self, read: Callable[[int], Draw]) -> None:
        self._read = read
        self._kept: dict[int, Draw] = {}
        self._bytes = 0
        self._reads: Counter[int] = Counter()
        self._last: dict[int, Draw] = {}

    def get(self, number: int) -> Draw:
        """Draw of that number."""
        found = self._kept.get(number) or self._last.get(number)
        if found is not None:
            return found
        self._last.clear()  # before the next one is read
        draw = self._read(number)
        self._reads[number] += 1
        most = KEPT_BYTES if self._reads[number] >= KEPT_FROM else KEPT_AT_ONCE
        if self._bytes + draw.nbytes <= most:
            self._kept[number] = draw
            self._bytes += draw.nbytes
        self._last[number] = draw
        return draw


@dataclass(frozen=True)
class Moments:
    """Posterior of one chain, as moments.

    Attributes
    ----------
    mean, variance : dict of kind to (n, D) float32
        Of every element of the factors over all draws of the chain.
    """

    mean: dict[str, Float32]
    variance: dict[str, Float32]
