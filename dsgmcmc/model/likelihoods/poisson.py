r"""Counts: x_ij ~ Poisson(exp(eta_ij)), whole numbers from 0 on.

The score is x - exp(eta). The logarithm of the mean training count is the level of the predictors: half of it is the
prior mean of each of the two biases, where chains start (`Poisson.bias_mean`). So there is no centring.

The curvature of the energy in eta is exp(eta), the expected count: without a bound, and rows may differ a thousandfold.
So a rating counts in the metric as much as the data say, r_i c_j / m, m being the mean of all counts: of a row with the
total X it is the Fisher information at the posterior, because the score of its bias is 0 there. In place of X is taken
X + 4 sqrt(X + 1) + 6, about what X may have come from: the wall that exp(eta) is to rows of few counts lies in the tail
of their posterior. That depends on the data alone, so that nothing is to be corrected for it. Beyond all this kicks are
bounded (`dsgmcmc.samplers.underdamped`). A softplus link, log(1 + exp(eta)), has a curvature of at most
1/4 + 0.165 x without any of it, but adds where counts multiply (docs/likelihoods.md has both, measured).

Over draws a count is a mixture of Poisson laws. Where only the moments of the rate are kept, as of test ratings, it is
the negative binomial law of the same mean and variance, which is exact if the rate has a Gamma law.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import log
from typing import Any, ClassVar

import numpy as np

from dsgmcmc.kernels.quantiles import summarise
from dsgmcmc.model.cell import RatingsCell
from dsgmcmc.model.circulation import Circulation
from dsgmcmc.model.likelihoods.base import Counts, Likelihood, Prediction
from dsgmcmc.targets.state import ParameterBlock
from dsgmcmc.types import Array, Float32, Float64, Int32

_NODES, _SHARES = np.polynomial.hermite_e.hermegauss(15)  # of the normal law
_SHARES /= _SHARES.sum()
_PAIRS = 512  # whose quantiles are looked for at a time


class Poisson(Likelihood):
    """Counts, with the logarithm as link."""

    score = "x - exp(eta)"
    has_noise = False
    of_counts = True
    defaults: ClassVar[dict[str, Any]] = {"noise_precision": 1.0}

    @staticmethod
    def bias_mean(mean: float) -> float:
        """See `Law.bias_mean`."""
        return log(mean) / 2

    # ------------------------------------------------------------------ of training ratings

    def noise_scale(self, block: ParameterBlock) -> Float32:
        """See `Law.noise_scale`: as `counts` has found it."""
        return block.row("weight")

    def counts(self, circulation: Circulation) -> tuple[Counts, Counts]:
        """See `Law.counts`: sums of r_i c_j / m, and of its square."""
        blocks = list(circulation.blocks())
        for block in blocks:
            block.arrays["weight"] = np.zeros((len(block.counts), 1), np.float32)
        for cell in circulation.tour(("weight",), returning=("weight",)):
            ratings, rows = cell.ratings, len(cell.row.counts)
            of_rating = np.repeat(np.arange(rows), np.diff(ratings.indptr))
            for block, index in ((cell.row, of_rating), (cell.column, ratings.indices)):
                block.row("weight")[:] += np.bincount(index, ratings.values, len(block.counts)).astype(np.float32)
        partials = [[{"total": np.array([row.row("weight").sum(dtype=np.float64)])}] for row, _ in circulation.pairs()]
        mean = float(circulation.ring.sum(partials)["total"][0]) / circulation.ratings.n_data
        for block in blocks:
            weight = block.row("weight")
            total = weight + 4 * np.sqrt(weight + 1) + 6
            weight[:] = total / (np.maximum(block.counts, 1) * np.sqrt(mean))
        return self.weighted_counts(circulation)

    @classmethod
    def log_likelihood_of_predictors(
        cls, x: Float64, eta: Float64, scale: Float64, thresholds: Array | None
    ) -> Float64:
        """See `Law.log_likelihood_of_predictors`."""
        from scipy.special import gammaln

        found: Float64 = x * eta - np.exp(np.minimum(eta, 700.0)) - gammaln(x + 1.0)
        return found

    # ------------------------------------------------------------------ of new ratings

    def variance(self, eta: Float32, cell: RatingsCell, rows: Int32, columns: Int32, tau: float) -> Float32 | float:
        """See `Likelihood.variance`."""
        return self.mean(eta)

    @staticmethod
    def mean(eta: Float32) -> Float32:
        """See `Likelihood.mean`."""
        found: Float32 = np.exp(eta)
        return found

    @staticmethod
    def draw(eta: Array, sd: Array | float, rng: np.random.Generator) -> Array:
        """See `Likelihood.draw`."""
        found: Array = rng.poisson(np.exp(eta)).astype(np.float64)
        return found

    @staticmethod
    def log_density(x: Array, mean: Array, variance: Array) -> Array:
        """See `Likelihood.log_density`: log probability of the count."""
        from scipy.special import gammaln, xlogy

        found: Array = xlogy(x, mean) - mean - gammaln(np.add(x, 1.0))
        for at, r in _spread(mean, variance):
            k, m = np.broadcast_to(x, found.shape)[at], mean[at]
            found[at] = gammaln(k + r) - gammaln(r) - gammaln(k + 1.0) + xlogy(k, m / (r + m)) - r * np.log1p(m / r)
        return found

    @staticmethod
    def cdf(x: Array, mean: Array, variance: Array) -> Float64:
        """See `Likelihood.cdf`."""
        from scipy.special import betainc, pdtr

        mean, variance = np.broadcast_arrays(np.asarray(mean, np.float64), np.asarray(variance, np.float64))
        whole = np.broadcast_to(np.floor(x), np.broadcast_shapes(np.shape(x), mean.shape))
        mean, variance = (np.broadcast_to(each, whole.shape) for each in (mean, variance))
        found = np.where(whole >= 0, pdtr(np.maximum(whole, 0), mean), 0.0)
        for at, r in _spread(mean, variance):
            own = betainc(r, np.maximum(whole[at], 0) + 1.0, r / (r + mean[at]))
            found[at] = np.where(np.isposinf(whole[at]), 1.0, np.where(whole[at] >= 0, own, 0.0))
        return found

    @classmethod
    def below(cls, bound: Array, mean: Array, variance: Array) -> Float64:
        """See `Likelihood.below`."""
        return cls.cdf(np.ceil(bound) - 1, mean, variance)

    @classmethod
    def quantile(cls, p: float, mean: Array, variance: Array) -> Float64:
        """See `Likelihood.quantile`: the smallest count that reaches it."""
        mean, variance = np.asarray(mean, np.float64), np.asarray(variance, np.float64)
        return _smallest(lambda count: cls.cdf(count, mean, variance), p, mean, variance)

    @classmethod
    def predictive(
        cls, eta: Float32, variance: Float32, weights: Float64, levels: tuple[float, float], of_mean: bool = False
    ) -> Prediction:
        """See `Likelihood.predictive`: a mixture of Poisson laws; a predictor that is not known is integrated over."""
        found = Prediction(*(np.empty(len(eta), np.float32) for _ in Prediction._fields))
        unsure = np.any(variance > 0, axis=1)
        for rows, nodes in ((np.flatnonzero(~unsure), False), (np.flatnonzero(unsure), True)):
            for part in (rows[start : start + _PAIRS] for start in range(0, len(rows), _PAIRS)):
                rate, shares = np.exp(eta[part].astype(np.float64)), weights
                if nodes:
                    sd = np.sqrt(variance[part])
                    rate = np.concatenate([rate * np.exp(node * sd) for node in _NODES], axis=1)
                    shares = np.concatenate([weights * share for share in _SHARES])
                for whole, own in zip(found, _mixture(rate, shares, levels, of_mean), strict=True):
                    whole[part] = own
        return found


def _spread(mean: Array, variance: Array) -> Iterator[tuple[Array, Array]]:
    """Where the variance is above the mean, and the size r of the negative binomial law of both, if anywhere."""
    excess = np.asarray(variance, np.float64) - mean
    at = excess > 1e-6 * np.asarray(mean)
    if np.any(at):
        yield at, np.square(np.asarray(mean, np.float64)[at]) / excess[at]


def _mixture(rate: Float64, weights: Float64, levels: tuple[float, float], of_mean: bool) -> tuple[Array, ...]:
    """Mean, sd and quantiles of mixtures of Poisson laws of these rates (q, components), or of the rates."""
    if of_mean:
        expected = rate.astype(np.float32)
        return summarise(expected, np.zeros_like(expected), weights, levels, (0.0, 0.0))
    mean = rate @ weights
    variance = np.maximum((rate * rate) @ weights - mean * mean, 0.0) + mean

    def up_to(count: Float64) -> Float64:
        from scipy.special import pdtr

        found: Float64 = np.asarray(pdtr(count[:, None], rate) @ weights)
        return found

    return mean, np.sqrt(variance), *(_smallest(up_to, p, mean, variance) for p in levels)


def _smallest(up_to: Callable[[Float64], Float64], p: float, mean: Float64, variance: Float64) -> Float64:
    """Smallest counts up to which there is probability p, less rounding: by doubling, then by halving the distance."""
    p -= 1e-12
    low: Float64 = np.full(mean.shape, -1.0)
    high: Float64 = np.ceil(mean + 4 * np.sqrt(variance)) + 1
    while np.any(short := up_to(high) < p):
        low, high = np.where(short, high, low), np.where(short, 2 * high, high)
    while np.any(high - low > 1):
        middle = np.floor((low + high) / 2)
        reached = (middle >= 0) & (up_to(np.maximum(middle, 0)) >= p)
        low, high = np.where(reached, low, middle), np.where(reached, middle, high)
    return high
