r"""Counts: x_ij is negative binomial, with mean m_ij = exp(eta_ij) and dispersion r.

If no training count is 0, zeros are taken never to be recorded, and the distribution is conditional
on x > 0. With the probability p_0 of 0 (`dsgmcmc.model.likelihoods.counts`), or p_0 = 0 without
truncation,

    d log p / d log m = (x - m / (1 - p_0)) / (1 + m / r)

The derivative is between -r and x, and the curvature in log m is at most (x + r) / 4. The mean has
a smooth ceiling M, 10 times the largest training count:

    m = 1 / (exp(-eta) + 1 / M)      d log m / d eta = 1 - m / M

M keeps predictions finite, and reduces m by about a tenth at the largest count.

The weight of a rating in the metric is i(y_i) i(y'_j) / i(y), where i(y) is the Fisher information
of a count on log m at mean y and the current r. The means y_i, y'_j and y are over the rating's
row, its column and all ratings. In y_i and y'_j the total X of a row or column is replaced by
X + 4 sqrt(X + 1) + 6, an upper limit of plausible totals, because the energy of rows with few
counts is steep in the tails. Kicks are bounded as well.

`dsgmcmc.model.likelihoods.dispersion` has the draws of r. If only moments are stored, as for test
ratings, the predictive distribution is the negative binomial distribution with the stored mean and
variance.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf, log, sqrt
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator
from pydantic import BaseModel
from typing_extensions import override

from dsgmcmc.errors import InputError
from dsgmcmc.kernels.densities import Shaped, shaped_kernel
from dsgmcmc.kernels.effects import Score, shaped_score
from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.model.circulation import Circulation, RatingsCell
from dsgmcmc.model.likelihoods.base import LINK_WIDTH, RatingWeights, State, score_terms
from dsgmcmc.model.likelihoods.counts import (
    NegativeBinomialLaw,
    NegativeBinomialMixture,
    count_information,
    matched_above_zero,
    moments_above_zero,
    rate_above_zero,
)
from dsgmcmc.model.likelihoods.dispersion import (
    NODES,
    START_DISPERSION,
    Dispersion,
    draw_dispersion,
)
from dsgmcmc.model.likelihoods.likelihood import Likelihood
from dsgmcmc.model.likelihoods.ordinal.levels import Levels
from dsgmcmc.model.parts.base import DrawContext, ModelFacts
from dsgmcmc.model.predictive.base import Moments, Predictive
from dsgmcmc.model.predictive.mixture import LawOfMoments
from dsgmcmc.model.quantity import Quantity
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.format import SPLITS
from dsgmcmc.settings import named
from dsgmcmc.targets.state import ParameterBlock
from dsgmcmc.types import Array, Factor, Float32, Float64, Named

CEILING = 10.0  # M, in units of the largest training count


def rate_of(eta: Array, ceiling: Array | float) -> Array:
    """Expected values m before any truncation, elementwise, given predictors and the ceiling M."""
    eta = np.asarray(eta)
    inverse = np.exp(np.minimum(-eta, eta.dtype.type(80)))
    return np.asarray(1 / (inverse + 1 / np.asarray(ceiling, eta.dtype)))


# ---------------------------------------------------------------------- kernels


_EXPECTED = "m = max(float32(1) / (exp32(-eta) + one_over_top), float32(1e-20))"


def _source(truncated: bool) -> Shaped:
    """Kernel source for the distribution of counts, truncated at 0 or not.

    Besides the score, it has T at the dispersions r0, r1, ... of the nodes; r2 is the current r.
    """
    nodes = range(len(NODES))
    parameters = ("one_over_top", *(f"r{k}" for k in nodes))
    slope = "(float32(1) - m * one_over_top) * r2 / (r2 + m)"
    rises = [f"rise{k} = log1p32(m / r{k})" for k in nodes]
    if not truncated:
        return Shaped(
            "negative_binomial",
            f"{_EXPECTED}\ne = (x - m) * {slope}",
            parameters,
            tallies=tuple(f"-(x + r{k}) * rise{k}" for k in nodes),
            tally_lines="\n".join(rises),
        )
    above = [f"above{k} = positive32(r{k} * rise{k})" for k in nodes]
    at_current = [rises.pop(2), above.pop(2)]
    return Shaped(
        "negative_binomial_above",
        "\n".join([_EXPECTED, *at_current, f"e = (x - m / above2) * {slope}"]),
        parameters,
        tallies=tuple(f"-(x + r{k}) * rise{k} - log32(above{k})" for k in nodes),
        tally_lines="\n".join([*rises, *above]),
    )


SOURCES = {truncated: _source(truncated) for truncated in (False, True)}
#: Scores for effects of groups, by whether the distribution is truncated.
SCORES = {truncated: shaped_score(source) for truncated, source in SOURCES.items()}


# ---------------------------------------------------------------------- the likelihood


def not_counts(values: Array) -> Array:
    """The ratings that are not whole numbers from 0 on."""
    return np.asarray(values[(values < 0) | (values != np.floor(values))])


class NegativeBinomial(Likelihood):
    """Counts, with the logarithm as link.

    `shape` is the dispersion, the ceiling, and the least possible count.
    """

    of_counts = True
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
    @override
    def quantities_with(
        cls, factors: tuple[Factor, ...], cut_by: Factor | None = None
    ) -> tuple[Quantity, ...]:
        return Dispersion.about(())

    @override
    def _set_up(self, levels: Levels | None) -> None:
        """Store the distinct training counts, the least possible count, and the ceiling."""
        self._table = levels
        self._least = self.starts["least"]
        self._ceiling = self.starts["ceiling"]
        if levels is not None:
            self._least = float(levels.values[0] > 0)
            self._ceiling = CEILING * float(levels.values[-1])
        self._truncated = self._least > 0

    @classmethod
    @override
    def read(
        cls, settings: BaseModel, ratings: Ratings, blocks: RatingBlocks, ring: Ring
    ) -> Levels:
        """Read the part's data from the ratings file, once for all chains of a run. Collective.

        Here: the distinct training counts, and the number of ratings at each.
        """
        return ring.agree(lambda: Levels.from_ratings(ratings))

    @staticmethod
    @override
    def bias_mean(mean: float) -> float:
        return log(mean) / 2

    @property
    def dispersion(self) -> float:
        """Current dispersion r."""
        return float(self.parameters.dispersion[0])

    @classmethod
    @override
    def shape_of(cls, shared: Mapping[str, Float64]) -> Float64:
        names = ("dispersion", "counts.ceiling", "counts.least")
        return np.concatenate([shared[name] for name in names])

    # ------------------------------------------------------------------ settings and ratings files

    @classmethod
    @override
    def check(cls, settings: BaseModel, model: ModelFacts) -> None:
        """Refuse a model without biases."""
        if not model.biases:
            raise InputError(
                f"{model.likelihood} has biases instead of a mean: leave out {named('no_biases')}"
            )

    @classmethod
    @override
    def check_ratings(cls, settings: Any, model: ModelFacts, ratings: Ratings) -> None:
        for split in SPLITS:
            for values in ratings.values(split):
                wrong = not_counts(values)
                if len(wrong):
                    raise InputError(
                        f"{ratings.path} has a {split} rating of {wrong[0]:g}, but"
                        f" {model.likelihood} is for counts (0, 1, 2, ...): use"
                        f" {named('likelihood')} gaussian or ordinal-logit, or prepare counts"
                    )
        if ratings.maximum == 0:
            raise InputError(
                f"{ratings.path}: all training ratings are 0, and {model.likelihood} needs"
                " positive ones"
            )

    @classmethod
    @override
    def warnings_for_data(cls, ratings: Ratings, likelihood: str) -> Iterator[str]:
        """Yield warnings if this likelihood may not suit the values in a ratings file.

        Here: also if test ratings have probability 0.
        """
        yield from super().warnings_for_data(ratings, likelihood)
        if ratings.minimum <= 0:
            return
        zeros = sum(np.count_nonzero(values == 0) for values in ratings.values("test"))
        if zeros:
            yield (
                f"{zeros:,} of {ratings.nnz_test:,} test ratings are 0, and no training rating is:"
                " counts then begin at 1, and these test ratings have probability 0; leave them"
                " out, or have zeros in training"
            )

    @classmethod
    @override
    def check_new(cls, values: Array, minimum: float) -> None:
        wrong = not_counts(values)
        if len(wrong):
            raise InputError(
                f"{len(wrong)} new ratings are not counts (0, 1, 2, ...), as the run needs:"
                f" {wrong[0]:g}"
            )
        zeros = np.count_nonzero(values == 0)
        if minimum > 0 and zeros:
            raise InputError(
                f"{zeros} new ratings are 0, and no training rating of the run is: its counts begin"
                " at 1, and 0 has probability 0; leave such ratings out, or sample again with zeros"
                " among the training ratings"
            )

    # ------------------------------------------------------------------ training ratings

    @override
    def start(self, blocks: Iterable[ParameterBlock]) -> None:
        self.parameters = Dispersion(
            dispersion=np.full(1, START_DISPERSION),
            ceiling=np.full(1, self._ceiling),
            least=np.full(1, self._least),
        )

    @override
    def add_gradient(
        self, cell: RatingsCell, position: str, out: str, *, scale: float, share: float
    ) -> float:
        has_offsets = cell.ratings.offsets is not None
        kernel = shaped_kernel(self.rank, self.biases, SOURCES[self._truncated], offset=has_offsets)
        dispersions = self.dispersion * np.exp(NODES)
        parameters = np.array([1 / self._ceiling, *dispersions], np.float32)
        sums = np.zeros(len(NODES))
        kernel(*cell.arguments(position, out), parameters, sums, scale)
        if share:
            self.sums_of(cell.row.index)[:] += share * sums
        return 0.0

    @override
    def scores(self, cell: RatingsCell) -> tuple[Score, Float32]:
        """Score at noise precision 1, and its arguments: the count, 1 / M and r."""
        terms = score_terms(cell.ratings.values, 1 / self._ceiling, self.dispersion)
        return SCORES[self._truncated], terms

    @override
    def noise_scale(self, block: ParameterBlock) -> Float32:
        """Noise scales g of a block's rows, (n,) float32: field ``weight``, by `counts`."""
        return block.row("weight")

    @override
    def counts(self, circulation: Circulation) -> RatingWeights:
        """For every row, the sums of its ratings' weights in the information, and of their squares.

        Collective.

        Here: a rating's weight is i(y_i) i(y'_j) / i(y), where i(y) is the information at mean
        count y, and y_i, y'_j and y are means over the row, over the column and over all ratings.
        """
        blocks = list(circulation.blocks())
        self._sum_counts(circulation, blocks)
        mean = self._total_count(circulation) / circulation.ratings.n_data
        r = self.dispersion
        average = count_information(np.array(mean), r, self._truncated)
        for block in blocks:
            weight = block.row("weight")  # at first the total of the row's counts
            # an upper limit of the expected totals that are plausible given this one: the energy of
            # rows with few counts is steep in the tails of the posterior
            limit = weight + 4 * np.sqrt(weight + 1) + 6
            mean_of_row = limit / np.maximum(block.counts, 1)
            weight[:] = count_information(mean_of_row, r, self._truncated) / sqrt(average)
        return self.weighted_counts(circulation)

    @staticmethod
    def _sum_counts(circulation: Circulation, blocks: Iterable[ParameterBlock]) -> None:
        """Set ``weight`` of every row of all blocks to the sum of its counts. Collective."""
        for block in blocks:
            block.arrays["weight"] = np.zeros((len(block.counts), 1), np.float32)
        for cell in circulation.tour(("weight",), returning=("weight",)):
            ratings = cell.ratings
            for block, index in ((cell.row, ratings.rows), (cell.column, ratings.indices)):
                sums = np.bincount(index, ratings.values, len(block.counts))
                block.row("weight")[:] += sums.astype(np.float32)

    @staticmethod
    def _total_count(circulation: Circulation) -> float:
        """Sum of all training counts, given their sums over rows in ``weight``. Collective."""
        partials = [[row.row("weight").sum(dtype=np.float64)] for row, _ in circulation.pairs()]
        return float(circulation.ring.sum({"total": np.array(partials)})["total"][0])

    # ------------------------------------------------------------------ draws of its parameter

    @override
    def sums(self, context: DrawContext) -> Named:
        return {"dispersion": self.block_sums(context.circulation)}

    @override
    def draw_shared(
        self, sums: Mapping[str, Float64], context: DrawContext, rng: Generator
    ) -> None:
        """Draw the dispersion; runs at the root."""
        assert self._table is not None
        drawn = draw_dispersion(self.dispersion, sums["dispersion"], self._table, rng)
        self.parameters.dispersion = np.full(1, drawn)

    # ------------------------------------------------------------------ new ratings

    @override
    def log_likelihood(self, x: Float32, state: State) -> float:
        """Sum of the log densities of ratings, given their distributions.

        Counts of 0 that cannot occur are left out, so that the sum tells how a chain mixes.
        """
        possible = np.flatnonzero(x >= self._least)
        distributions = State(*(np.asarray(values)[possible] for values in state))
        return super().log_likelihood(x[possible], distributions)

    @staticmethod
    @override
    def mean(eta: Array, *shape: Array | float) -> Array:
        return NegativeBinomial._moments(eta, *shape)[0]

    @staticmethod
    @override
    def variance(eta: Array, noise: Array | float, *shape: Array | float) -> Array | float:
        return NegativeBinomial._moments(eta, *shape)[1]

    @staticmethod
    def _moments(eta: Array, *shape: Array | float) -> tuple[Array, Array]:
        """Mean and variance of counts, elementwise."""
        dispersion, ceiling, least = shape
        rate = rate_of(eta, ceiling)
        variance = rate + rate**2 / dispersion
        truncated = np.asarray(least) > 0
        if not np.any(truncated):
            return rate, variance
        mean_above, variance_above = moments_above_zero(rate, np.asarray(dispersion))
        return np.where(truncated, mean_above, rate), np.where(truncated, variance_above, variance)

    @staticmethod
    @override
    def log_density(x: Array, mean: Array, variance: Array, *shape: Array | float) -> Array:
        dispersion, _, least = (np.asarray(values, np.float64) for values in shape)
        rate = np.asarray(mean, np.float64)
        if np.any(least > 0):
            rate = np.where(least > 0, rate_above_zero(rate, dispersion), rate)
        return NegativeBinomialLaw.log_density(x, mean, variance, rate, dispersion, least)

    @classmethod
    @override
    def components(
        cls, eta: Float64, noise: Array, shape: Sequence[Array]
    ) -> tuple[type[LawOfMoments], Array, Array, Sequence[Array]]:
        dispersion, ceiling, least = shape
        mean, variance = cls._moments(eta, *shape)
        return NegativeBinomialLaw, mean, variance, (rate_of(eta, ceiling), dispersion, least)

    @classmethod
    @override
    def predictive_of_moments(cls, moments: Moments) -> Predictive:
        mean = np.asarray(moments.mean, np.float64)[:, None]
        variance = np.asarray(moments.variance, np.float64)[:, None]
        least = np.zeros((1, 1))
        if moments.shape is not None:
            least = np.ceil(moments.shape[:, 2:3])
        if np.any(least > 0):
            rate, dispersion = matched_above_zero(mean, variance)
        else:
            rate = mean
            overdispersed = variance > (1 + 1e-6) * mean
            excess = np.where(overdispersed, variance - mean, 1.0)
            dispersion = np.where(overdispersed, mean**2 / excess, inf)
        return NegativeBinomialMixture(
            NegativeBinomialLaw,
            mean,
            variance,
            np.ones(1),
            levels=moments.levels,
            shape=(rate, dispersion, least),
        )
