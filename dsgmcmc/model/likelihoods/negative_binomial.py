r"""Counts: x_ij is negative binomial, with mean m_ij = exp(eta_ij), dispersion r, and variance m +
m^2 / r.

r is at least 0.1 and at most 1,000, where the distribution is almost Poisson. If no training count
is 0, zeros are taken never to be recorded, as in lists of the places that people have visited, and
the distribution is truncated: conditional on x > 0. So with p_0 = (1 + m / r)^-r, the probability
of 0, or p_0 = 0 without truncation,

    log p = lgamma(x + r) - lgamma(r) - lgamma(x + 1)
            + x log(m / r) - (x + r) log(1 + m / r) - log(1 - p_0)
    d log p / d log m = (x - m / (1 - p_0)) / (1 + m / r)

The derivative is between -r and x, and the curvature in log m is at most (x + r) / 4. The Fisher
information on log m is Var(x) / (1 + m / r)^2: m / (1 + m / r) without truncation. But exp(eta)
could overflow, and a row of few counts could lead to predictions far above all observed counts. So
the expected value has a smooth ceiling M, 10 times the largest training count:

    m = 1 / (exp(-eta) + 1 / M)      d log m / d eta = 1 - m / M

which reduces m by about a tenth at the largest count. Ratings are not centred: half the logarithm
of the mean training count is the prior mean and the initial value of each of the two biases.

*Metric.* The weight of a rating is i(y_i) i(y'_j) / i(y), where i(y) is the information at mean
count y and the current r. The mean counts y_i, y'_j and y are over the rating's row, over its
column, and over all ratings. Means of rows may differ a thousandfold. In y_i and y'_j, the total X
of a row or column is replaced by X + 4 sqrt(X + 1) + 6, an upper limit of the expected totals that
are plausible given X, because the energy of rows with few counts is steep in the tails of the
posterior. In addition, kicks are bounded (`dsgmcmc.samplers.underdamped`).

*Dispersion.* With R(x) = lgamma(x + r) - lgamma(r) - x log r, which follows from a table of the
training counts, log p depends on r through R and T = -(x + r) log(1 + m / r) - log(1 - p_0). The
pass that computes the gradient also adds up T at several dispersions about r (`NODES`), so that log
p of all counts is known between them as a polynomial of log r. r is drawn without another pass over
the ratings, by `METROPOLIS_STEPS` Metropolis steps in log r, whose sizes vary from 0.3 / sqrt(N) to
100 / sqrt(N). The steps stay in an interval that is half as wide as the range of the nodes. Its
position relative to the current r is uniform. This amounts to a random division of the line into
such intervals, which leaves the posterior invariant. Prior: log r ~ N(log 10, 2^2).

The predictive distribution of a count is a mixture of negative binomial distributions over draws.
If only moments are stored, as for test ratings, it is the negative binomial distribution with the
stored mean and variance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, log, sqrt
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator

from dsgmcmc.data.ratings import Ratings
from dsgmcmc.data.ratings_format import SPLITS
from dsgmcmc.errors import InputError
from dsgmcmc.kernels.effects import Score
from dsgmcmc.kernels.shaped import Shaped, shaped_kernel
from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.model.circulation import Circulation, RatingsCell
from dsgmcmc.model.likelihoods.base import (
    LINK_WIDTH,
    Counts,
    Levels,
    Likelihood,
    State,
    metropolis,
    score_terms,
)
from dsgmcmc.model.parts.base import DrawContext
from dsgmcmc.model.predictive.base import Moments, Predictive
from dsgmcmc.model.predictive.mixture import CountMixture, LawOfMoments
from dsgmcmc.model.quantity import Quantity, Sampled, hyperparameter
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.settings import named
from dsgmcmc.targets.state import ParameterBlock
from dsgmcmc.types import Array, Factor, Float32, Float64, Named

START_DISPERSION, DISPERSION_BOUNDS = 10.0, (0.1, 1000.0)  # initial value of r, and its bounds
PRIOR_SD = 2.0  # sd of the prior of log r
CEILING = 10.0  # M, in units of the largest training count
NODES = np.array([-0.3, -0.15, 0.0, 0.15, 0.3])  # nodes in log r, relative to its current value


# ---------------------------------------------------------------------- counts, all or above 0


def rate_of(eta: Array, ceiling: Array | float) -> Array:
    """Expected values m, elementwise, given predictors and the ceiling M."""
    eta = np.asarray(eta)
    return np.asarray(
        1 / (np.exp(np.minimum(-eta, eta.dtype.type(80))) + 1 / np.asarray(ceiling, eta.dtype))
    )


def log_zero(mean: Array, dispersion: Array) -> Float64:
    """Log probability of a count of 0 before any truncation, given the mean and the dispersion (may
    be infinite).
    """
    poisson = np.isinf(dispersion)
    size = np.where(poisson, 1.0, dispersion)
    return np.asarray(
        np.where(poisson, -np.asarray(mean, np.float64), -size * np.log1p(mean / size))
    )


def moments_above_zero(rate: Array, dispersion: Array) -> tuple[Float64, Float64]:
    """Mean and variance of counts above 0, given expected values and dispersions before the
    truncation.
    """
    m = np.maximum(np.asarray(rate, np.float64), 1e-9)
    mean = m / -np.expm1(log_zero(m, dispersion))
    return mean, np.maximum(mean * (1 + m + m / dispersion - mean), 0.0)


def rate_above_zero(mean: Array, dispersion: Array) -> Float64:
    """Expected values before the truncation, given the means of counts above 0 and the dispersions.

    Newton's method approaches log m from above: the mean of counts above 0 is a convex function of
    log m, with slope variance / (1 + m / r).
    """
    mean = np.maximum(np.asarray(mean, np.float64), 1 + 1e-6)
    rate = mean + 0.0 * dispersion
    for _ in range(60):
        mean_there, variance_there = moments_above_zero(rate, dispersion)
        step = (mean_there - mean) / np.maximum(variance_there / (1 + rate / dispersion), 1e-300)
        rate = rate * np.exp(-np.clip(step, -2, 2))
        if np.abs(step).max(initial=0.0) < 1e-9:
            break
    return rate


def matched_above_zero(mean: Float64, variance: Float64) -> tuple[Float64, Float64]:
    """Expected values and dispersions before the truncation that give counts above 0 this mean and
    variance.

    The truncation does not change a := E[x (x - 1)] / E[x] = m (1 + 1 / r). So r = m / (a - m), and
    m in (0, a) is chosen so that the mean is right, or as close as possible if no such distribution
    has this mean and variance.
    """
    mean = np.maximum(mean, 1 + 1e-6)
    a = np.maximum((variance + mean**2) / mean - 1, 1e-6)
    low, high = np.full_like(a, -14.0), np.zeros_like(a)  # bounds on log(m / a)
    for _ in range(45):
        middle = (low + high) / 2
        rate = a * np.exp(middle)
        too_small = moments_above_zero(rate, rate / np.maximum(a - rate, 1e-12 * a))[0] < mean
        low, high = np.where(too_small, middle, low), np.where(too_small, high, middle)
    rate = a * np.minimum(np.exp(high), 1 - 1e-6)
    return rate, rate / (a - rate)


def information(mean: Array, dispersion: float, truncated: bool) -> Float64:
    """Fisher information of a count on log m, elementwise, given its mean after any truncation."""
    if not truncated:
        return np.asarray(mean / (1 + mean / dispersion), np.float64)
    rate = rate_above_zero(mean, np.array(dispersion))
    variance = moments_above_zero(rate, np.array(dispersion))[1]
    return np.asarray(variance / np.square(1 + rate / dispersion), np.float64)


# ---------------------------------------------------------------------- their distributions


def plain_tail(
    whole: Float64,
    mean: Array,
    dispersion: Array,
    gamma: Callable[..., Array],
    beta: Callable[..., Array],
) -> Float64:
    """Probability, before any truncation, of counts up to `whole` or above it, by functions of
    SciPy for this tail.
    """
    k, poisson = np.clip(whole, 0, 1e15) + 1.0, np.isinf(dispersion)
    size = np.where(poisson, 1.0, dispersion)
    return np.asarray(np.where(poisson, gamma(k, mean), beta(size, k, size / (size + mean))))


class NegativeBinomialLaw:
    """Negative binomial distributions, given expected values m and dispersions r before any
    truncation.

    The variance before truncation is m + m^2 / r; r is infinite for a Poisson distribution. `least`
    is 0, or 1 if a count of 0 cannot occur: probabilities are then conditional on a count above 0.
    """

    @staticmethod
    def cdf(x: Array, mean: Array, variance: Array, *shape: Array | float) -> Float64:
        """Probability of a count of at most `x`."""
        from scipy.special import betainc, gammaincc

        whole, m, r, least = np.broadcast_arrays(np.floor(x), *shape)
        probability = plain_tail(whole, m, r, gammaincc, betainc)
        if np.any(least > 0):
            probability = np.where(least > 0, 1 - NegativeBinomialLaw.above(x, *shape), probability)
        probability = np.where(np.isposinf(whole), 1.0, np.where(whole >= least, probability, 0.0))
        return np.clip(probability, 0.0, 1.0)

    @staticmethod
    def above(x: Array, *shape: Array | float) -> Float64:
        """Probability of a count of more than `x`, accurate also where it is tiny."""
        from scipy.special import betaincc, gammainc

        whole, m, r, least = np.broadcast_arrays(np.floor(x), *shape)
        probability = plain_tail(whole, m, r, gammainc, betaincc)
        if np.any(least > 0):
            probability = np.where(least > 0, probability / -np.expm1(log_zero(m, r)), probability)
        return np.where(whole >= least, np.clip(probability, 0.0, 1.0), 1.0)

    @staticmethod
    def log_density(x: Array, mean: Array, variance: Array, *shape: Array | float) -> Array:
        """Log probability of counts."""
        from scipy.special import gammaln, xlogy

        k, m, r, least = np.broadcast_arrays(x, *shape)
        poisson = np.isinf(r)
        size = np.where(poisson, 1.0, r)
        log_p: Array = (
            gammaln(k + size) - gammaln(size) + xlogy(k, m / (size + m)) - size * np.log1p(m / size)
        )
        log_p = np.where(poisson, xlogy(k, m) - m, log_p) - gammaln(k + 1.0)
        if np.any(least > 0):
            log_p = np.where(least > 0, log_p - np.log(-np.expm1(log_zero(m, r))), log_p)
            log_p = np.where(k >= least, log_p, -np.inf)
        return log_p


class NegativeBinomialMixture(CountMixture):
    """Mixtures of negative binomial distributions."""

    def at_least(self, bound: float) -> Float64:
        """Probability of a rating of at least `bound`; here from the upper tail, where it loses no
        digits.
        """
        return np.asarray(
            NegativeBinomialLaw.above(np.full((1, 1), np.ceil(bound) - 1), *self.shape)
            @ self.weights
        )

    def log_probability(self, x: Array) -> Float64:
        """Log probability of the level nearest to each rating; minus infinity for a count of 0 that
        cannot occur.
        """
        return np.where(
            np.asarray(x) < self.shape[2].max(axis=1), -np.inf, super().log_probability(x)
        )


# ---------------------------------------------------------------------- kernels


_EXPECTED = "m = max(float32(1) / (exp32(-eta) + one_over_top), float32(1e-20))"


def _source(truncated: bool) -> Shaped:
    """Kernel source for the distribution of counts, truncated at 0 or not."""
    nodes = range(len(NODES))
    name, expected, known = "negative_binomial", "m", [""] * len(NODES)
    lines = [_EXPECTED, *(f"rise{k} = log1p32(m / r{k})" for k in nodes)]
    if truncated:
        lines += [f"above{k} = positive32(r{k} * rise{k})" for k in nodes]
        name, expected, known = (
            "negative_binomial_above",
            "m / above2",
            [f" - log32(above{k})" for k in nodes],
        )
    lines += [f"e = (x - {expected}) * (float32(1) - m * one_over_top) * r2 / (r2 + m)"]
    tallies = tuple(f"-(x + r{k}) * rise{k}{known[k]}" for k in nodes)
    return Shaped(name, "\n".join(lines), ("one_over_top", *(f"r{k}" for k in nodes)), tallies)


SOURCES = {truncated: _source(truncated) for truncated in (False, True)}


def _score(name: str, expected: str) -> Score:
    """Score for effects of groups, given the expression for the expected count."""
    slope = "(float32(1) - m * one_over_top) * r / (r + m)"
    return Score(name, f"{_EXPECTED}\ne = (x - {expected}) * {slope}", ("x", "one_over_top", "r"))


#: Scores for effects of groups, by whether the distribution is truncated.
EFFECTS = {
    False: _score("negative_binomial", "m"),
    True: _score("negative_binomial_above", "m / positive32(r * log1p32(m / r))"),
}


# ---------------------------------------------------------------------- dispersion


@dataclass
class Dispersion(Sampled):
    """Dispersion r, ceiling M and least possible count, (1,) float64 each; the last two follow from
    training counts.
    """

    quantities: ClassVar[Mapping[str, Quantity]] = {
        "dispersion": hyperparameter(
            "dispersion", "dispersion of the counts about their means", dims=("one",)
        ),
        "ceiling": Quantity("counts.ceiling", ("one",), positive=True),
        "least": Quantity("counts.least", ("one",)),
    }

    dispersion: Float64
    ceiling: Float64
    least: Float64


def draw_dispersion(dispersion: float, sums: Float64, table: Levels, rng: Generator) -> float:
    """Draw r; return it.

    Parameters
    ----------
    dispersion : float
        Value of r at which `sums` were computed.
    sums : (5,) float64
        Sums of T over the training ratings, at the dispersions r exp(`NODES`).
    table : Levels
        The distinct training counts, and the number of ratings at each.
    rng : Generator
    """
    from scipy.special import gammaln

    x, n = table.values[:, None], table.counts
    r = dispersion * np.exp(NODES)
    logs = n @ (gammaln(x + r) - gammaln(r) - x * np.log(r)) + sums
    terms = np.linalg.solve(np.vander(NODES, increasing=True), logs - logs[2]).tolist()
    centre, total = log(dispersion), float(n.sum())
    middle = NODES[-1] * (rng.random() - 0.5)

    def log_density(moved: Float64) -> float:
        move = moved.item()
        at = centre + move
        if (
            abs(move - middle) > NODES[-1] / 2
            or not DISPERSION_BOUNDS[0] <= exp(at) <= DISPERSION_BOUNDS[1]
        ):
            return -inf
        log_likelihood = 0.0
        for term in reversed(terms):
            log_likelihood = log_likelihood * move + term
        return log_likelihood - ((at - log(START_DISPERSION)) / PRIOR_SD) ** 2 / 2

    return exp(centre + metropolis(log_density, (0.0,), total, rng).item())


# ---------------------------------------------------------------------- the likelihood


def not_counts(values: Array) -> Array:
    """The ratings that are not whole numbers from 0 on."""
    return np.asarray(values[(values < 0) | (values != np.floor(values))])


class NegativeBinomial(Likelihood):
    """Counts, with the logarithm as link; `shape` is the dispersion, the ceiling, and the least
    possible count.
    """

    starts: ClassVar[Mapping[str, float]] = {
        "dispersion": START_DISPERSION,
        "ceiling": 1e4,
        "least": 0.0,
    }
    parameters: Dispersion
    mixture = NegativeBinomialMixture
    sums_name = "dispersion"
    sums_shape = (len(NODES),)
    has_noise = False
    replaces_mean = True
    width = LINK_WIDTH
    defaults: ClassVar[dict[str, Any]] = {"noise_precision": 1.0}

    @classmethod
    def quantities_with(
        cls, factors: tuple[Factor, ...], cut_by: Factor | None = None
    ) -> tuple[Quantity, ...]:
        """The quantities of a chain, given the factors whose rows have noise scales and, as
        `cut_by`, thresholds.
        """
        return Dispersion.about(())

    def _set_up(self, levels: Levels | None) -> None:
        """Store the distinct training counts, the least possible count, and the ceiling."""
        self._table = levels
        self._least, self._top = self.starts["least"], self.starts["ceiling"]
        if levels is not None:
            self._least, self._top = float(levels.values[0] > 0), CEILING * float(levels.values[-1])
        self._truncated = self._least > 0

    @classmethod
    def read(cls, config: Any, ratings: Ratings, blocks: RatingBlocks, ring: Ring) -> Levels:
        """Read the part's data from the ratings file, once for all chains of a run. Collective.

        Here: the distinct training counts, and the number of ratings at each.
        """
        return ring.agree(lambda: Levels.of(ratings))

    @staticmethod
    def bias_mean(mean: float) -> float:
        """Prior mean of a bias, given the training mean, which biases must account for if it is not
        subtracted.
        """
        return log(mean) / 2

    @property
    def dispersion(self) -> float:
        """Current dispersion r."""
        return float(self.parameters.dispersion[0])

    @classmethod
    def shape_of(cls, shared: Mapping[str, Float64]) -> Float64:
        """A draw's parameters, (m,), that predictions need in addition to mean and variance; None
        if there are none.
        """
        return np.concatenate(
            [shared[name] for name in ("dispersion", "counts.ceiling", "counts.least")]
        )

    # ------------------------------------------------------------------ settings and ratings files

    @classmethod
    def check(cls, config: Any) -> None:
        """Refuse settings of a run (`dsgmcmc.config.run.ResolvedConfig`) that the part cannot be
        combined with.
        """
        super().check(config)
        if not config.biases:
            raise InputError(
                f"{config.likelihood} has biases instead of a mean: leave out {named('no_biases')}"
            )

    @classmethod
    def check_ratings(cls, config: Any, ratings: Ratings) -> None:
        """Refuse ratings that are not whole numbers from 0 on, or are all 0."""
        for split in SPLITS:
            for x in ratings.values(split):
                wrong = not_counts(x)
                if len(wrong):
                    advice = (
                        f"use {named('likelihood')} gaussian or ordinal-logit, or prepare counts"
                    )
                    needs = f"{config.likelihood} is for counts (0, 1, 2, ...): {advice}"
                    raise InputError(
                        f"{ratings.path} has a {split} rating of {wrong[0]:g}, but {needs}"
                    )
        if ratings.maximum == 0:
            raise InputError(
                f"{ratings.path}: all training ratings are 0, and {config.likelihood} needs"
                " positive ones"
            )

    @classmethod
    def warnings_for_data(cls, ratings: Ratings, likelihood: str) -> Iterator[str]:
        """Yield warnings if this likelihood may not suit the values in a ratings file.

        Here: also if test ratings have probability 0.
        """
        yield from super().warnings_for_data(ratings, likelihood)
        if ratings.minimum > 0 and (
            zeros := sum(np.count_nonzero(x == 0) for x in ratings.values("test"))
        ):
            found = (
                f"{zeros:,} of {ratings.nnz_test:,} test ratings are 0, and no training rating is"
            )
            advice = (
                "these test ratings have probability 0; leave them out, or have zeros in training"
            )
            yield f"{found}: counts then begin at 1, and {advice}"

    @classmethod
    def check_new(cls, values: Array, minimum: float) -> None:
        """Raise `InputError` for new ratings that are impossible, given the lowest training rating."""
        wrong = not_counts(values)
        if len(wrong):
            raise InputError(
                f"{len(wrong)} new ratings are not counts (0, 1, 2, ...), as the run needs:"
                f" {wrong[0]:g}"
            )
        if minimum > 0 and (zeros := np.count_nonzero(values == 0)):
            advice = "leave such ratings out, or sample again with zeros among the training ratings"
            reason = f"its counts begin at 1, and 0 has probability 0; {advice}"
            raise InputError(
                f"{zeros} new ratings are 0, and no training rating of the run is: {reason}"
            )

    # ------------------------------------------------------------------ training ratings

    def start(self, blocks: Iterable[ParameterBlock]) -> None:
        """Set the part's fields in blocks and its shared parameters to their initial values."""
        self.parameters = Dispersion(
            *(np.full(1, value) for value in (START_DISPERSION, self._top, self._least))
        )

    def add_gradient(
        self, cell: RatingsCell, position: str, out: str, scale: float, share: float
    ) -> float:
        """Add the gradient of a cell's energy, times `scale`, to `out` of both blocks."""
        has_offsets = cell.ratings.offsets is not None
        kernel = shaped_kernel(self.rank, self.biases, SOURCES[self._truncated], offset=has_offsets)
        parameters, sums = (
            np.array([1 / self._top, *self.dispersion * np.exp(NODES)], np.float32),
            np.zeros(len(NODES)),
        )
        kernel(*cell.arguments(position, out), parameters, sums, scale)
        if share:
            self.sums_of(cell.row.index)[:] += share * sums
        return 0.0

    def scores(self, cell: RatingsCell) -> tuple[Score, Float32]:
        """Score at noise precision 1, and its arguments: the count, 1 / M and r."""
        return EFFECTS[self._truncated], score_terms(
            cell.ratings.values, 1 / self._top, self.dispersion
        )

    def noise_scale(self, block: ParameterBlock) -> Float32:
        """Noise scales g of a block's rows, (n,) float32; 1 if all rows have the same noise.

        Here: field ``weight``, which `counts` computes.
        """
        return block.row("weight")

    def counts(self, circulation: Circulation) -> tuple[Counts, Counts]:
        """For every row, the sums of its ratings' weights in the information, and of their squares.

        Collective.

        Here: a rating's weight is i(y_i) i(y'_j) / i(y).
        """
        blocks = list(circulation.blocks())
        for block in blocks:
            block.arrays["weight"] = np.zeros((len(block.counts), 1), np.float32)
        for cell in circulation.tour(("weight",), returning=("weight",)):
            ratings = cell.ratings
            for block, index in ((cell.row, ratings.rows), (cell.column, ratings.indices)):
                block.row("weight")[:] += np.bincount(
                    index, ratings.values, len(block.counts)
                ).astype(np.float32)
        partials = {
            "total": np.array(
                [[row.row("weight").sum(dtype=np.float64)] for row, _ in circulation.pairs()]
            )
        }
        mean = float(circulation.ring.sum(partials)["total"][0]) / circulation.ratings.n_data
        r = self.dispersion
        average = information(np.array(mean), r, self._truncated)
        for block in blocks:
            total = block.row("weight")
            mean_of_row = (total + 4 * np.sqrt(total + 1) + 6) / np.maximum(block.counts, 1)
            total[:] = information(mean_of_row, r, self._truncated) / sqrt(average)
        return self.weighted_counts(circulation)

    # ------------------------------------------------------------------ draws of its parameter

    def sums(self, context: DrawContext) -> Named:
        """Partial sums for `draw_shared`, each (local blocks, ...) in block order; None if the part
        needs none.
        """
        return {"dispersion": self.block_sums(context.circulation)}

    def draw_shared(
        self, subchain: int, sums: Mapping[str, Float64], context: DrawContext, rng: Generator
    ) -> None:
        """Draw a sub-chain's parameters in `replicated`, given the totals of all `sums`; runs at
        the root.

        Here: the dispersion.
        """
        assert self._table is not None
        self.parameters.dispersion = np.full(
            1, draw_dispersion(self.dispersion, sums["dispersion"], self._table, rng)
        )

    # ------------------------------------------------------------------ new ratings

    def log_likelihood(self, x: Float32, state: State) -> float:
        """Sum of the log densities of ratings, given their distributions; all may share one
        variance, (1,).

        Here: without the counts of 0 that cannot occur, so that the sum tells how a chain mixes.
        """
        possible = np.flatnonzero(x >= self._least)
        return super().log_likelihood(
            x[possible], State(*(np.asarray(values)[possible] for values in state))
        )

    @staticmethod
    def mean(eta: Array, *shape: Array | float) -> Array:
        """Expected rating given its predictor, elementwise."""
        return NegativeBinomial._moments(eta, *shape)[0]

    @staticmethod
    def variance(eta: Array, noise: Array | float, *shape: Array | float) -> Array | float:
        """Variance of a rating given its predictor and its noise variance 1 / (tau g g'),
        elementwise.
        """
        return NegativeBinomial._moments(eta, *shape)[1]

    @staticmethod
    def _moments(eta: Array, *shape: Array | float) -> tuple[Array, Array]:
        """Mean and variance of counts, elementwise."""
        dispersion, ceiling, least = shape
        rate = rate_of(eta, ceiling)
        plain = rate, rate + rate**2 / dispersion
        if not np.any(np.asarray(least) > 0):
            return plain
        above = moments_above_zero(rate, np.asarray(dispersion))
        mean, variance = (
            np.where(np.asarray(least) > 0, b, a) for a, b in zip(plain, above, strict=True)
        )
        return mean, variance

    @staticmethod
    def log_density(x: Array, mean: Array, variance: Array, *shape: Array | float) -> Array:
        """Log density of ratings with these means and variances, in nats, elementwise: log
        probability of the count.
        """
        dispersion, _, least = (np.asarray(values, np.float64) for values in shape)
        rate = np.asarray(mean, np.float64)
        if np.any(least > 0):
            rate = np.where(least > 0, rate_above_zero(rate, dispersion), rate)
        return NegativeBinomialLaw.log_density(x, mean, variance, rate, dispersion, least)

    @classmethod
    def components(
        cls, eta: Float64, noise: Array, shape: Sequence[Array]
    ) -> tuple[type[LawOfMoments], Array, Array, Sequence[Array]]:
        """Components of a mixture over draws: class of the distribution, means, variances, further
        parameters.
        """
        dispersion, ceiling, least = shape
        return (
            NegativeBinomialLaw,
            *cls._moments(eta, *shape),
            (rate_of(eta, ceiling), dispersion, least),
        )

    @classmethod
    def predictive_of_moments(cls, moments: Moments) -> Predictive:
        """Posterior predictive distributions, approximated from moments over draws."""
        mean, variance = (np.asarray(moment, np.float64)[:, None] for moment in moments[:2])
        over = variance > (1 + 1e-6) * mean
        rate, dispersion = mean, np.where(over, mean**2 / np.where(over, variance - mean, 1.0), inf)
        least = np.zeros((1, 1)) if moments.shape is None else np.ceil(moments.shape[:, 2:3])
        if np.any(least > 0):
            rate, dispersion = matched_above_zero(mean, variance)
        shape = rate, dispersion, least
        return NegativeBinomialMixture(
            NegativeBinomialLaw, mean, variance, np.ones(1), levels=moments.levels, shape=shape
        )
