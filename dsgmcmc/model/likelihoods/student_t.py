r"""Heavy tails: Student-t noise of nu degrees of freedom and scale s about eta, 1 / s^2 = tau g_i
g'_j.

With e = x - eta, a = tau / nu and p = a g g' e^2 / (1 + a g g' e^2), a rating's log density and its
derivatives are

    log p = lgamma((nu + 1) / 2) - lgamma(nu / 2) + log(a g g' / pi) / 2 - ((nu + 1) / 2) log(1 + a g g' e^2)
    d log p / d eta = tau g g' ((nu + 1) / nu) e / (1 + a g g' e^2)        d log p / d log g = 1 / 2 - ((nu + 1) / 2) p

The score is bounded: outliers have little influence. The metric uses the Fisher information on eta,
tau g g' (nu + 1) / (nu + 3) [Lange, Little & Taylor 1989]. The curvature of a rating is largest at
e = 0, tau g g' (nu + 1) / nu, which is (nu + 3) / nu < 2.5 times the information. For outliers it
is negative, and at least -1/8 of the largest.

*nu and tau* depend on the residuals through F(y) = sum log(1 + exp(y) g g' e^2) alone, with y = log
a. So the pass that computes the gradient also adds up F and its first four derivatives, whose terms
are polynomials of p:

    F' = sum p      F'' = sum p (1 - p)      F''' = sum p (1 - p)(1 - 2 p)      F'''' = sum p (1 - p)(1 - 6 p (1 - p))

F is then known near y by Taylor's formula, and (nu, tau) is drawn without another pass over the
ratings, by `METROPOLIS_STEPS` Metropolis steps in (log(nu - 2), log tau), whose sizes vary from 0.3
/ sqrt(N) to 100 / sqrt(N). The steps stay in an interval of y of width 2 `NU_STEP_REACH`. Its
position relative to the current y is uniform. This amounts to a random division of the line into
such intervals, which leaves the posterior invariant. The priors are nu - 2 ~ Gamma(2, rate 0.1), so
that ratings have a variance and the normal distribution is within reach [Juarez & Steel 2010]; log
tau ~ N(0, 3^2), with ratings in units of their sd, most of which may be due to outliers. nu stays
within `NU_BOUNDS`, and s between exp(-7) and exp(7), because the density of ratings that are mostly
equal has no maximum otherwise. If ratings have few distinct values, s is also at least a fifth of
the distance between the closest two values, or of the ratings' sd if the sd is smaller.

*Scales of rows*, g_i, are sampled as in `dsgmcmc.model.likelihoods.scales`, with |log g| below
`MAX_LOG_SCALE`; the information of a rating on log g is nu / (2 (nu + 3)).

[Lange, Little & Taylor 1989] Robust statistical modeling using the t distribution, JASA 84. [Juarez
& Steel 2010] Model-based clustering of non-Gaussian panel data based on skew-t distributions, JBES
28.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import exp, inf, lgamma, log, pi, sqrt
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator

from dsgmcmc.data.ratings import Ratings
from dsgmcmc.kernels.effects import Score
from dsgmcmc.kernels.shaped import Shaped, shaped_kernel
from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.model.circulation import Circulation, RatingsCell
from dsgmcmc.model.likelihoods.base import (
    Counts,
    Levels,
    Likelihood,
    metropolis,
    score_terms,
    with_weight,
)
from dsgmcmc.model.likelihoods.scales import SCALE_PRIOR, ScaledRows, ScalePrecision
from dsgmcmc.model.parts.base import DrawContext
from dsgmcmc.model.predictive.base import Moments, Predictive
from dsgmcmc.model.predictive.mixture import SymmetricMixture
from dsgmcmc.model.quantity import Quantity, Sampled, hyperparameter
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.targets.state import ParameterBlock
from dsgmcmc.types import Array, Factor, Float32, Float64, Named

START_NU = 8.0
NU_BOUNDS, MAX_LOG_TAU = (2.02, 1000.0), 14.0  # bounds on nu, and on |log tau|
PRIOR_RATE, TAU_SD = 0.1, 3.0  # rate of the prior of nu - 2, and sd of the prior of log tau
NU_STEP_REACH = 0.3  # half the width of the interval in which y moves at one draw
FEW_VALUES = 100  # largest number of distinct values that count as few
MIN_SCALE_SHARE = (
    0.2  # smallest s, as a fraction of the smallest distance between few distinct values
)
MAX_LOG_SCALE = 4.0
_NODES, _SHARES = np.polynomial.hermite_e.hermegauss(9)
_SHARES /= _SHARES.sum()

RATINGS = Shaped(
    "student_t",
    """\
error = x - eta
away = min(ratio * s * error * error, float32(1e30))
near = float32(1) / (float32(1) + away)
far = away * near
both = far * near
e = weight * s * error * near
""",
    parameters=("ratio", "weight", "half"),
    tallies=(
        "log32(float32(1) + away)",
        "far",
        "both",
        "both * (near - far)",
        "both * (float32(1) - float32(6) * both)",
    ),
    slope="float32(0.5) - half * far",
)

#: Score for effects of groups, which multiply it by tau.
EFFECTS = Score(
    "student_t",
    "d = x - eta\ne = (nu + float32(1)) * s * d / (nu + tau * s * d * d)",
    ("x", "s", "nu", "tau"),
)


@dataclass
class Tails(Sampled):
    """Degrees of freedom nu, (1,) float64."""

    quantities: ClassVar[Mapping[str, Quantity]] = {
        "nu": hyperparameter("nu", "nu, degrees of freedom of the ratings' noise", dims=("one",))
    }

    nu: Float64


class StudentT(ScaledRows, Likelihood):
    """Student-t ratings; `shape` is the ratio of the variance to the squared scale, nu / (nu - 2)."""

    starts: ClassVar[Mapping[str, float]] = {"inflation": START_NU / (START_NU - 2)}
    is_linear = True
    exponential_has_mean = False
    mixture = SymmetricMixture
    draws_precision = True
    scale_bound = MAX_LOG_SCALE
    sums_name = "tails"
    sums_shape = (len(RATINGS.tallies),)
    tails: Tails

    @classmethod
    def quantities_with(
        cls, factors: tuple[Factor, ...], cut_by: Factor | None = None
    ) -> tuple[Quantity, ...]:
        """The quantities of a chain, given the factors whose rows have noise scales and, as
        `cut_by`, thresholds.
        """
        return (*super().quantities_with(factors), *Tails.about(()), *ScalePrecision.about(factors))

    @classmethod
    def read(cls, config: Any, ratings: Ratings, blocks: RatingBlocks, ring: Ring) -> Levels | None:
        """Read the part's data from the ratings file, once for all chains of a run. Collective.

        Here: the distinct training ratings in units of their sd, if they are few.
        """
        values = ratings.levels(FEW_VALUES)
        return (
            None
            if values is None
            else Levels(values / blocks.scale, np.zeros(len(values), np.int64))
        )

    def _set_up(self, levels: Levels | None) -> None:
        """Compute the largest log tau."""
        least = (
            0.0
            if levels is None
            else MIN_SCALE_SHARE * float(np.diff(levels.values).min(initial=1.0))
        )
        self._max_log_tau = -2 * log(max(least, exp(-MAX_LOG_TAU / 2)))

    @property
    def replicated(self) -> tuple[Sampled, ...]:
        """The part's parameters that are the same on all processes."""
        return (self.tails, self.scales)

    @property
    def nu(self) -> float:
        """Degrees of freedom."""
        return float(self.tails.nu[0])

    @property
    def _tau(self) -> float:
        return float(self.noise_parameters.tau[0])

    @classmethod
    def shape_of(cls, shared: Mapping[str, Float64]) -> Float64:
        """A draw's parameters, (m,), that predictions need in addition to mean and variance; None
        if there are none.
        """
        return shared["nu"] / (shared["nu"] - 2)

    # ------------------------------------------------------------------ training ratings

    def start(self, blocks: Iterable[ParameterBlock]) -> None:
        """Set the part's fields in blocks and its shared parameters to their initial values."""
        self.tails = Tails(np.full(1, START_NU))
        super().start(blocks)

    def add_gradient(
        self, cell: RatingsCell, position: str, out: str, scale: float, share: float
    ) -> float:
        """Add the gradient of a cell's energy, times `scale`, to `out` of both blocks."""
        nu, blocks = self.nu, (cell.row, cell.column) if self.heteroscedastic else ()
        kernel = shaped_kernel(
            self.rank,
            self.biases,
            RATINGS,
            scaled=self.heteroscedastic,
            offset=cell.ratings.offsets is not None,
        )
        parameters = np.array([self._tau / nu, (nu + 1) / nu, (nu + 1) / 2], np.float32)
        sums, scales = np.zeros(len(RATINGS.tallies)), [self.row_scale(block) for block in blocks]
        slopes = [np.zeros(len(block.counts), np.float32) for block in blocks]
        kernel(*cell.arguments(position, out), parameters, sums, *scales, *slopes, scale)
        if share:
            self.sums_of(cell.row.index)[:] += share * sums
            self.keep_slopes(blocks, slopes, share)
        return 0.0

    def scores(self, cell: RatingsCell) -> tuple[Score, Float32]:
        """Score at noise precision 1, and its arguments: the rating, its scale, nu and tau."""
        ratings = cell.ratings
        scale = (
            self.row_scale(cell.row)[ratings.rows] * self.row_scale(cell.column)[ratings.indices]
        )
        return EFFECTS, score_terms(ratings.values, scale, self.nu, self._tau)

    def noise_scale(self, block: ParameterBlock) -> Float32:
        """Noise scales g of a block's rows, (n,) float32; 1 if all rows have the same noise.

        Here: g sqrt((nu + 1) / (nu + 3)), so that the product of both rows' scales has (nu + 1) /
        (nu + 3) once.
        """
        return np.float32(sqrt((self.nu + 1) / (self.nu + 3))) * self.row_scale(block)

    def counts(self, circulation: Circulation) -> tuple[Counts, Counts]:
        """For every row, the sums of its ratings' weights in the information, and of their squares.

        Collective.

        Here: a rating's weight is g g' (nu + 1) / (nu + 3).
        """
        return with_weight(super().counts(circulation), np.float32((self.nu + 1) / (self.nu + 3)))

    # ------------------------------------------------------------------ draws of its parameters

    def sums(self, context: DrawContext) -> Named:
        """Partial sums for `draw_shared`, each (local blocks, ...) in block order; None if the part
        needs none.
        """
        circulation = context.circulation
        return {"tails": self.block_sums(circulation), **self.square_sums(circulation)}

    def draw_shared(
        self, subchain: int, sums: Mapping[str, Float64], context: DrawContext, rng: Generator
    ) -> None:
        """Draw a sub-chain's parameters in `replicated`, given the totals of all `sums`; runs at
        the root.

        Here: nu and tau, and the precisions of the scales.
        """
        ratings, largest = (
            context.circulation.ratings,
            self._max_log_tau if "squared_error" in sums else None,
        )
        nu, tau = draw_tails(self.nu, self._tau, sums["tails"], ratings.n_data, rng, largest)
        self.tails.nu = np.full(1, nu)
        self.noise_parameters.tau[subchain] = tau
        for factor in self.factors:
            self.scales.precision[factor] = SCALE_PRIOR.draw(
                sums[f"{factor.name}.scales"], ratings.shape[factor], rng
            )

    def draw(self, context: DrawContext) -> None:
        """Draw the parameters that `draw_shared` does not draw, if they are due
        (`DrawContext.is_turn`). Collective.

        Here: move the scales.
        """
        self.move_scales(context.circulation, self.nu / (2 * (self.nu + 3)))

    # ------------------------------------------------------------------ new ratings

    @staticmethod
    def variance(eta: Array, noise: Array | float, *shape: Array | float) -> Array | float:
        """Variance of a rating given its predictor and its squared scale `noise`, 1 / (tau g g'),
        elementwise.
        """
        return noise * shape[0]

    @staticmethod
    def log_density(x: Array, mean: Array, variance: Array, *shape: Array | float) -> Array:
        """Log density of ratings with these means and variances, in nats, elementwise."""
        from scipy.special import gammaln

        inflation = np.asarray(shape[0], np.float64)
        nu, square = 2 * inflation / (inflation - 1), np.asarray(variance, np.float64) / shape[0]
        constant = gammaln((nu + 1) / 2) - gammaln(nu / 2) - np.log(nu * pi) / 2
        return np.asarray(
            constant
            - np.log(square) / 2
            - (nu + 1) / 2 * np.log1p(np.square(x - mean) / square / nu)
        )

    @staticmethod
    def cdf(x: Array, mean: Array, variance: Array, *shape: Array | float) -> Float64:
        """Probability that a rating is at most `x`, elementwise."""
        from scipy.special import stdtr  # slow to import

        inflation = np.asarray(shape[0], np.float64)
        nu = 2 * inflation / (inflation - 1)
        return np.asarray(stdtr(nu, (x - mean) / np.sqrt(variance / inflation)))

    @classmethod
    def predictive_of_moments(cls, moments: Moments) -> Predictive:
        """Predictive distributions from moments over draws: Student-t noise about a normal
        predictor, by quadrature.
        """
        mean, variance, _, levels, noise, shape = moments
        assert noise is not None
        assert shape is not None
        sd = np.sqrt(np.maximum(variance - noise, 0.0))
        at = mean[:, None] + sd[:, None] * _NODES
        return cls.mixture(cls, at, noise[:, None], _SHARES, levels=levels, shape=(shape[:, :1],))


def draw_tails(
    nu: float, tau: float, sums: Float64, n: int, rng: Generator, largest: float | None
) -> tuple[float, float]:
    """Draw nu and tau given n residuals; return them.

    Parameters
    ----------
    nu, tau : float
        Values at which `sums` were computed.
    sums : (5,) float64
        F and its first four derivatives, summed over all ratings.
    n : int
        Number of ratings.
    rng : Generator
    largest : float or None
        Largest log tau; None if tau is fixed.
    """
    # below, u is log(nu - 2), v is log tau, and `move` is the change of y
    y, range_of_v = log(tau / nu), (-inf, inf) if largest is None else (-MAX_LOG_TAU, largest)
    middle = NU_STEP_REACH * (2 * rng.random() - 1)
    terms = (sums / np.array([1, 1, 2, 6, 24])).tolist()

    def log_density(at: Float64) -> float:
        u, v = at.tolist()
        if largest is None:
            v = log(tau)
        proposed = 2 + exp(u)
        move = v - log(proposed) - y
        bounded = range_of_v[0] <= v <= range_of_v[1] and NU_BOUNDS[0] <= proposed <= NU_BOUNDS[1]
        if abs(move - middle) > NU_STEP_REACH or not bounded:
            return -inf
        f = terms[0] + move * (terms[1] + move * (terms[2] + move * (terms[3] + move * terms[4])))
        normaliser = lgamma((proposed + 1) / 2) - lgamma(proposed / 2) + (v - log(proposed)) / 2
        prior = 2 * u - PRIOR_RATE * exp(u) - (v / TAU_SD) ** 2 / 2
        return float(n * normaliser - (proposed + 1) / 2 * f + prior)

    u, v = metropolis(log_density, (log(nu - 2), log(tau)), n, rng).tolist()
    return 2 + exp(u), tau if largest is None else exp(v)
