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

from collections.abc import Iterator
from math import log
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from dsgmcmc.data.ratings.format import row_slabs
from dsgmcmc.errors import InputError
from dsgmcmc.model.blocks import SLAB
from dsgmcmc.model.circulation import Circulation
from dsgmcmc.model.likelihoods.base import LINK_WIDTH, Counts, Likelihood
from dsgmcmc.model.predictive.counts import CountMixture
from dsgmcmc.settings import named
from dsgmcmc.targets.state import ParameterBlock
from dsgmcmc.types import Array, Float32, Float64, Int64

if TYPE_CHECKING:
    from dsgmcmc.data.ratings import Ratings


class Poisson(Likelihood):
    """Counts, with the logarithm as link."""

    score = "x - exp(eta)"
    mixture = CountMixture
    has_noise = False
    in_place_of_mean = "biases"
    width = LINK_WIDTH
    clips_kicks = True
    defaults: ClassVar[dict[str, Any]] = {"noise_precision": 1.0}

    @staticmethod
    def bias_mean(mean: float) -> float:
        """See `Law.bias_mean`."""
        return log(mean) / 2

    # ------------------------------------------------------------------ of settings, and of files of ratings

    @classmethod
    def check(cls, config: Any) -> None:
        """See `Law.check`."""
        super().check(config)
        if not config.biases:
            raise InputError(f"{config.likelihood} has biases instead of a mean: leave out {named('no_biases')}")

    @classmethod
    def check_ratings(cls, config: Any, ratings: Ratings) -> None:
        """Refuse ratings that are not whole numbers from 0 on, or are all 0."""
        parts: tuple[tuple[Literal["train", "test"], Int64], ...]
        parts = (("train", ratings.row_indptr), ("test", ratings.test_indptr))
        for part, indptr in parts:
            for start, stop in row_slabs(indptr, SLAB):
                x = ratings.slab(part, start, stop)[2]
                wrong = x[(x < 0) | (x != np.floor(x))]
                if len(wrong):
                    raise InputError(
                        f"{ratings.path} has a {part} rating of {wrong[0]:g}, but {config.likelihood} is for counts "
                        f"(0, 1, 2, ...): use {named('likelihood')} gaussian or ordinal-logit, or prepare counts"
                    )
        if ratings.maximum == 0:
            raise InputError(
                f"{ratings.path}: all training ratings are 0: there is nothing for {config.likelihood} to learn from"
            )

    @classmethod
    def check_new(cls, values: Array) -> None:
        """See `Law.check_new`."""
        wrong = values[(values < 0) | (values != np.floor(values))]
        if len(wrong):
            raise InputError(
                f"{len(wrong)} of the new ratings are not counts (0, 1, 2, ...), as the run's are: {wrong[0]:g}"
            )

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
        partials = {"total": np.array([[row.row("weight").sum(dtype=np.float64)] for row, _ in circulation.pairs()])}
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

    @staticmethod
    def mean(eta: Array) -> Array:
        """See `Likelihood.mean`."""
        found: Array = np.exp(eta)
        return found

    @staticmethod
    def variance(eta: Array, noise: Array | float) -> Array | float:
        """See `Likelihood.variance`."""
        return Poisson.mean(eta)

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

        whole = np.floor(x)
        found = np.where(whole >= 0, pdtr(np.maximum(whole, 0), mean), 0.0)
        whole, mean, variance = (np.broadcast_to(each, found.shape) for each in (whole, mean, variance))
        for at, r in _spread(mean, variance):
            own = betainc(r, np.maximum(whole[at], 0) + 1.0, r / (r + mean[at]))
            found[at] = np.where(np.isposinf(whole[at]), 1.0, np.where(whole[at] >= 0, own, 0.0))
        return found


def _spread(mean: Array, variance: Array) -> Iterator[tuple[Array, Array]]:
    """Where the variance is above the mean, and the size r of the negative binomial law of both, if anywhere."""
    at = variance > (1 + 1e-6) * np.asarray(mean, np.float64)
    if np.any(at):
        m = np.asarray(mean, np.float64)[at]
        yield at, m**2 / (variance[at] - m)
