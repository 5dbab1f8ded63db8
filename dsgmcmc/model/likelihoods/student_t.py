r"""Heavy tails: Student-t noise about eta, of nu degrees of freedom and scale (tau g_i g'_j)^-1/2.

With e = x - eta, a = tau / nu, q = a g g' e^2 and p = q / (1 + q), a rating's log density and its
derivatives are

    log p(x) = lgamma((nu + 1) / 2) - lgamma(nu / 2)
               + log(a g g' / pi) / 2 - ((nu + 1) / 2) log(1 + q)
    d log p(x) / d eta = tau g g' ((nu + 1) / nu) e / (1 + q)
    d log p(x) / d log g = 1 / 2 - ((nu + 1) / 2) p

If ratings have weights, a weight multiplies tau g g' wherever it occurs.

The metric uses the Fisher information on eta, tau g g' (nu + 1) / (nu + 3) [Lange, Little & Taylor
1989], and on log g, nu / (2 (nu + 3)). Scales g: `dsgmcmc.model.likelihoods.row_scales`.

(nu, tau) need no further pass over the ratings. The residuals matter through

    F(y) = sum log(1 + e^y g g' e^2),    y = log(tau / nu)

alone. The pass for the gradient adds up F and its first four derivatives, whose terms are
polynomials of p; Taylor's formula gives F nearby. 64 Metropolis steps in (log(nu - 2), log tau)
follow, of sizes from 0.3 / sqrt(N) to 100 / sqrt(N). They stay in an interval of y of width 0.6,
whose position relative to the current value is uniform, which leaves the posterior invariant.

nu is at least 2.02, and the scale of the noise at least e^-7: otherwise the density of ratings that
are mostly equal has no maximum.

[Lange, Little & Taylor 1989] Robust statistical modeling using the t distribution, JASA 84.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import exp, inf, lgamma, log, pi, sqrt
from typing import ClassVar

import numpy as np
from numpy.random import Generator
from pydantic import BaseModel
from typing_extensions import override

from dsgmcmc.kernels.densities import Shaped, shaped_kernel
from dsgmcmc.kernels.effects import Score, shaped_score
from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.model.circulation import Circulation, RatingsCell
from dsgmcmc.model.likelihoods.base import RatingWeights, score_terms
from dsgmcmc.model.likelihoods.likelihood import Likelihood
from dsgmcmc.model.likelihoods.metropolis import metropolis
from dsgmcmc.model.likelihoods.ordinal.levels import Levels
from dsgmcmc.model.likelihoods.row_scales import SCALE_PRIOR, ScaledRows, ScalePrecision
from dsgmcmc.model.parts.base import DrawContext
from dsgmcmc.model.predictive.base import Moments, Predictive
from dsgmcmc.model.predictive.mixture import SymmetricMixture
from dsgmcmc.model.quantity import Quantity, Sampled, hyperparameter
from dsgmcmc.model.truncation import left_tail
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.targets.state import ParameterBlock
from dsgmcmc.types import Array, Factor, Float32, Float64, Named

START_NU = 8.0
NU_BOUNDS = (2.02, 1000.0)
#: Bound on |log tau|: without one, the density of ratings that are mostly equal has no maximum.
MAX_LOG_TAU = 14.0
PRIOR_RATE = 0.1  # of the prior of nu - 2, Gamma(2, rate) [Juarez & Steel 2010]
TAU_SD = 3.0  # of the prior of log tau, with ratings in units of their sd
NU_STEP_REACH = 0.3  # half the width of the interval in which log(tau / nu) moves at one draw
FEW_VALUES = 100  # largest number of distinct values that count as few
#: Smallest scale of the noise, as a fraction of the smallest distance between few distinct values.
MIN_SCALE_SHARE = 0.2
MAX_LOG_SCALE = 4.0  # bound on |log g|
_NODES, _SHARES = np.polynomial.hermite_e.hermegauss(9)
_SHARES /= _SHARES.sum()

RATINGS = Shaped(
    "student_t",
    """\
error = x - eta
away = min(ratio * s * error * error, float32(1e30))
near = float32(1) / (float32(1) + away)
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
    tally_lines="far = away * near\nboth = far * near",
    slope="float32(0.5) - half * far",
)

#: Score for effects of groups, which multiply it by tau.
SCORE = shaped_score(RATINGS)


@dataclass
class Tails(Sampled):
    """Degrees of freedom nu, (1,) float64."""

    quantities: ClassVar[Mapping[str, Quantity]] = {
        "nu": hyperparameter("nu", "nu, degrees of freedom of the ratings' noise", dims=("one",))
    }

    nu: Float64


class StudentT(ScaledRows, Likelihood):
    """Student-t ratings; `shape` is the variance over the squared scale, nu / (nu - 2)."""

    starts: ClassVar[Mapping[str, float]] = {"inflation": START_NU / (START_NU - 2)}
    is_linear = True
    takes_weights = True
    takes_bounds = True
    exponential_has_mean = False
    has_heavy_tails = True
    mixture = SymmetricMixture
    draws_precision = True
    scale_bound = MAX_LOG_SCALE
    sums_name = "tails"
    sums_shape = (len(RATINGS.tallies),)
    tails: Tails

    @classmethod
    @override
    def quantities_with(
        cls, factors: tuple[Factor, ...], cut_by: Factor | None = None
    ) -> tuple[Quantity, ...]:
        return (*super().quantities_with(factors), *Tails.about(()), *ScalePrecision.about(factors))

    @classmethod
    @override
    def read(
        cls, settings: BaseModel, ratings: Ratings, blocks: RatingBlocks, ring: Ring
    ) -> Levels | None:
        """Read the part's data from the ratings file, once for all chains of a run. Collective.

        Here: the distinct training ratings in units of their sd, if they are few.
        """
        values = ratings.levels(FEW_VALUES)
        if values is None:
            return None
        return Levels(values / blocks.scale, np.zeros(len(values), np.int64))

    @override
    def _set_up(self, levels: Levels | None) -> None:
        """Compute the largest log tau: that of the smallest scale of the noise."""
        smallest_scale = exp(-MAX_LOG_TAU / 2)
        if levels is not None:
            distance = float(np.diff(levels.values).min(initial=1.0))
            smallest_scale = max(MIN_SCALE_SHARE * distance, smallest_scale)
        self._max_log_tau = -2 * log(smallest_scale)

    @property
    @override
    def replicated(self) -> tuple[Sampled, ...]:
        return (self.tails, self.scales)

    @property
    def nu(self) -> float:
        """Degrees of freedom."""
        return float(self.tails.nu[0])

    @property
    def _tau(self) -> float:
        return float(self.noise_parameters.tau)

    @classmethod
    @override
    def shape_of(cls, shared: Mapping[str, Float64]) -> Float64:
        return shared["nu"] / (shared["nu"] - 2)

    # ------------------------------------------------------------------ training ratings

    @property
    def _parameters(self) -> tuple[float, float, float]:
        """Values of the parameters of `RATINGS`."""
        nu = self.nu
        return self._tau / nu, (nu + 1) / nu, (nu + 1) / 2

    @override
    def start(self, blocks: Iterable[ParameterBlock]) -> None:
        self.tails = Tails(np.full(1, START_NU))
        super().start(blocks)

    @override
    def add_gradient(
        self, cell: RatingsCell, position: str, out: str, *, scale: float, share: float
    ) -> float:
        parameters = np.array(self._parameters, np.float32)
        sums = np.zeros(len(RATINGS.tallies))
        blocks = (cell.row, cell.column) if self.heteroscedastic else ()
        scales = [self.row_scale(block) for block in blocks]
        slopes = [np.zeros(len(block.counts), np.float32) for block in blocks]
        kernel = shaped_kernel(
            self.rank,
            self.biases,
            RATINGS,
            scaled=self.heteroscedastic,
            offset=cell.ratings.offsets is not None,
            by_rating=cell.ratings.weights is not None,
        )
        kernel(*cell.arguments(position, out), parameters, sums, *scales, *slopes, scale)
        if share:
            self.sums_of(cell.row.index)[:] += share * sums
            for block, slope in zip(blocks, slopes, strict=True):
                self.keep_slopes(block, slope, share)
        return 0.0

    @override
    def scores(self, cell: RatingsCell) -> tuple[Score, Float32]:
        """Score at noise precision 1, and its arguments: the rating, its scale, and parameters."""
        scales = self.rating_precisions(cell)
        ratio, weight, _ = self._parameters
        return SCORE, score_terms(cell.ratings.values, scales, ratio, weight)

    @override
    def noise_scale(self, block: ParameterBlock) -> Float32:
        """Noise scales g of a block's rows, (n,) float32; 1 if all rows have the same noise.

        Here: g sqrt((nu + 1) / (nu + 3)), so that the product of both rows' scales has (nu + 1) /
        (nu + 3) once.
        """
        return np.float32(sqrt((self.nu + 1) / (self.nu + 3))) * self.row_scale(block)

    @override
    def counts(self, circulation: Circulation) -> RatingWeights:
        """For every row, the sums of its ratings' weights in the information, and of their squares.

        Collective.

        Here: a rating's weight is g g' (nu + 1) / (nu + 3).
        """
        return super().counts(circulation).times(np.float32((self.nu + 1) / (self.nu + 3)))

    # ------------------------------------------------------------------ draws of its parameters

    @override
    def sums(self, context: DrawContext) -> Named:
        circulation = context.circulation
        return {"tails": self.block_sums(circulation), **self.square_sums(circulation)}

    @override
    def draw_shared(
        self, sums: Mapping[str, Float64], context: DrawContext, rng: Generator
    ) -> None:
        """Draw nu, tau unless it is fixed, and the precisions of the scales; runs at the root."""
        ratings = context.circulation.ratings
        max_log_tau = min(self._max_log_tau, log(context.precision_limit))
        tau_is_sampled = "squared_error" in sums  # a sum of the noise, if it samples tau
        nu, tau = draw_tails(
            self.nu,
            self._tau,
            sums["tails"],
            n=ratings.n_data,
            max_log_tau=max_log_tau if tau_is_sampled else None,
            rng=rng,
        )
        self.tails.nu = np.full(1, nu)
        self.noise_parameters.tau = np.array(tau)
        for factor in self.factors:
            self.scales.precision[factor] = SCALE_PRIOR.draw(
                sums[f"{factor.name}.scales"], ratings.shape[factor], rng
            )

    @override
    def draw(self, context: DrawContext) -> None:
        """Move the scales. Collective."""
        self.move_scales(context.circulation, self.nu / (2 * (self.nu + 3)), self._tau)

    # ------------------------------------------------------------------ new ratings

    @staticmethod
    @override
    def variance(eta: Array, noise: Array | float, *shape: Array | float) -> Array | float:
        """Variance of a rating given its squared scale `noise`, 1 / (tau g g'), elementwise."""
        return noise * shape[0]

    @staticmethod
    @override
    def log_density(x: Array, mean: Array, variance: Array, *shape: Array | float) -> Array:
        from scipy.special import gammaln

        inflation = np.asarray(shape[0], np.float64)
        nu = 2 * inflation / (inflation - 1)
        square = np.asarray(variance, np.float64) / shape[0]
        constant = gammaln((nu + 1) / 2) - gammaln(nu / 2) - np.log(nu * pi) / 2
        tail = (nu + 1) / 2 * np.log1p(np.square(x - mean) / square / nu)
        return np.asarray(constant - np.log(square) / 2 - tail)

    @staticmethod
    @override
    def cdf(x: Array, mean: Array, variance: Array, *shape: Array | float) -> Float64:
        from scipy.special import stdtr  # slow to import

        inflation = np.asarray(shape[0], np.float64)
        nu = 2 * inflation / (inflation - 1)
        return np.asarray(stdtr(nu, (x - mean) / np.sqrt(variance / inflation)))

    @staticmethod
    @override
    def quantile_between(
        p: Float64,
        mean: Float64,
        variance: Float64,
        bounds: tuple[Float64, Float64],
        *shape: Array | float,
    ) -> Float64:
        from scipy.special import stdtr, stdtrit  # slow to import

        inflation = np.asarray(shape[0], np.float64)
        nu = 2 * inflation / (inflation - 1)
        scale = np.sqrt(variance / inflation)
        sign, left, right = left_tail((bounds[0] - mean) / scale, (bounds[1] - mean) / scale)
        below = stdtr(nu, left)
        share = np.where(sign > 0, p, 1 - p)
        t = stdtrit(nu, below + share * (stdtr(nu, right) - below))
        return np.asarray(mean + scale * sign * np.clip(t, left, right))

    @classmethod
    @override
    def predictive_of_moments(cls, moments: Moments) -> Predictive:
        """Predictive distributions: Student-t noise about a normal predictor, by quadrature."""
        noise = moments.noise
        shape = moments.shape
        assert noise is not None
        assert shape is not None
        sd = np.sqrt(np.maximum(moments.variance - noise, 0.0))
        means = moments.mean[:, None] + sd[:, None] * _NODES
        return cls.mixture(
            cls, means, noise[:, None], _SHARES, levels=moments.levels, shape=(shape[:, :1],)
        )


def draw_tails(
    nu: float, tau: float, sums: Float64, *, n: int, max_log_tau: float | None, rng: Generator
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
    max_log_tau : float or None
        Largest log tau; None if tau is fixed.
    rng : Generator
    """
    posterior = TailsPosterior(
        n=n,
        y=log(tau / nu),
        taylor=(sums / np.array([1, 1, 2, 6, 24])).tolist(),
        middle=NU_STEP_REACH * (2 * rng.random() - 1),
        fixed_log_tau=log(tau) if max_log_tau is None else None,
        max_log_tau=inf if max_log_tau is None else max_log_tau,
    )
    drawn = metropolis(posterior.log_density, (log(nu - 2), log(tau)), n, rng)
    log_excess, log_tau = drawn.tolist()
    new_nu = 2 + exp(log_excess)
    if max_log_tau is None:
        return new_nu, tau
    return new_nu, exp(log_tau)


@dataclass(frozen=True)
class TailsPosterior:
    """Posterior of nu and tau near their current values, given n residuals.

    With y = log(tau / nu), the residuals matter through F(y) = sum log(1 + exp(y) g g' e^2) alone.
    Its Taylor series about the current y holds in an interval of width 2 `NU_STEP_REACH`; outside
    the density is 0.

    Attributes
    ----------
    n : int
        Number of ratings.
    y : float
        Current y.
    taylor : list of float
        Coefficients of F about the current y.
    middle : float
        Middle of the interval, relative to the current y.
    fixed_log_tau : float or None
        log tau, if tau is fixed.
    max_log_tau : float
        Largest log tau, if tau is not fixed.
    """

    n: int
    y: float
    taylor: list[float]
    middle: float
    fixed_log_tau: float | None
    max_log_tau: float

    def log_density(self, at: Float64) -> float:
        """Log density at log(nu - 2) and log tau, (2,), up to a constant."""
        log_excess, log_tau = at.tolist()
        if self.fixed_log_tau is not None:
            log_tau = self.fixed_log_tau
        elif not -MAX_LOG_TAU <= log_tau <= self.max_log_tau:
            return -inf
        nu = 2 + exp(log_excess)
        if not NU_BOUNDS[0] <= nu <= NU_BOUNDS[1]:
            return -inf
        step = log_tau - log(nu) - self.y
        if abs(step - self.middle) > NU_STEP_REACH:
            return -inf
        f = 0.0
        for coefficient in reversed(self.taylor):
            f = f * step + coefficient
        normaliser = lgamma((nu + 1) / 2) - lgamma(nu / 2) + (log_tau - log(nu)) / 2
        log_prior = 2 * log_excess - PRIOR_RATE * exp(log_excess) - (log_tau / TAU_SD) ** 2 / 2
        return float(self.n * normaliser - (nu + 1) / 2 * f + log_prior)
