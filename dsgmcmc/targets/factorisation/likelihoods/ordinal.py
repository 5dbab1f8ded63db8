r"""Ratings of ordered levels [McCullagh 1980]: P(x at most level r) = F(s_i s_j (C_r - eta_ij)).

F is the logistic (``ordinal-logit``) or the normal (``ordinal-probit``) distribution function; the levels v_0 < v_1 ...
are the ratings that occur in training. Two levels, such as 0 and 1, make logistic or probit regression. How far apart
levels are is learnt, in the thresholds C (`thresholds`), which also take the training mean's place. The scales s are 1,
or of every user, item, or both (`scales`).

The factors' metric takes the Fisher information of a rating where eta = 0, on the average, in the place of tau; not
below 0.6 of the largest curvature that a rating can have, so that rows away from the average are stable, too. The
largest is 1/4 for two levels and 1/2 for more (logistic), 1 (normal).

[McCullagh 1980] Regression models for ordinal data, JRSS B 42.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import numpy as np

from dsgmcmc.kernels.levels import level_probabilities
from dsgmcmc.kernels.ordinal import Link, level_tables, ordinal_kernel
from dsgmcmc.parallel.named import shapes_of
from dsgmcmc.storage.manifest import Key
from dsgmcmc.targets.factorisation.cell import RatingsCell
from dsgmcmc.targets.factorisation.circulation import Circulation
from dsgmcmc.targets.factorisation.likelihoods.base import Counts, Law, Levels
from dsgmcmc.targets.factorisation.likelihoods.scales import (
    SCALE_FIELDS,
    draw_precision,
    move_scales,
    square_sum,
    start_scales,
)
from dsgmcmc.targets.factorisation.likelihoods.thresholds import ThresholdModel
from dsgmcmc.targets.state import ParameterBlock, Stream
from dsgmcmc.types import Array, Factor, Float32, Float64, Int32, Purpose

#: More are no levels but measurements.
MAX_LEVELS = 100


class Ordinal(Law):
    """Ratings of ordered levels; `link` names F."""

    link: ClassVar[Link]
    largest_curvature: ClassVar[float]
    has_levels = True
    has_noise = False
    noise_fields = SCALE_FIELDS
    defaults: ClassVar[dict[str, Any]] = {"noise_precision": 1.0}

    def __init__(
        self,
        rank: int,
        biases: bool,
        heteroscedastic: bool = False,
        levels: Levels | None = None,
        factors: tuple[Factor, ...] = tuple(Factor),
        background: float | None = None,
    ) -> None:
        assert levels is not None
        super().__init__(rank, biases, heteroscedastic, levels, factors, background)
        self.values = levels.values
        self.model = ThresholdModel(self.link, levels.counts)
        self._begin()
        two = len(levels.values) == 2 and self.link == "logit"
        self._weight = max(self.model.information, 0.6 * self.largest_curvature * (0.5 if two else 1.0))
        self._sums: dict[int, Float64] = {}  # of the scores, by level, over the sweep, by row block

    def _begin(self) -> None:
        self.thresholds, self.scales = self.model.start(), start_scales(self.factors)
        self.replicated = (self.thresholds, self.scales)

    # ------------------------------------------------------------------ of training ratings

    def start(self, blocks: Iterable[ParameterBlock]) -> None:
        """See `Law.start`: all scales are 1, at rest."""
        self._begin()
        for block in blocks if self.heteroscedastic else ():
            block["weight"].fill(1.0)
            block["drift"].fill(0.0)

    def reset_errors(self, blocks: Iterable[ParameterBlock]) -> None:
        """See `Law.reset_errors`: of the scores' sums by level and by row."""
        for sums in self._sums.values():
            sums[:] = 0.0
        for block in blocks if self.heteroscedastic else ():
            block["slope"].fill(0.0)

    def _sums_of(self, row_block: int) -> Float64:
        return self._sums.setdefault(row_block, np.zeros((len(self.values), 2)))

    def add_gradient(self, cell: RatingsCell, position: str, out: str, scale: float, share: float) -> float:
        """See `Law.add_gradient`."""
        ratings, blocks = cell.ratings, (cell.row, cell.column)
        kernel = ordinal_kernel(self.rank, self.biases, self.link, self.heteroscedastic)
        arrays = [block[name] for name in (position, out) for block in blocks]
        sums = np.zeros((len(self.values), 2))
        arrays += [level_tables(self.link, self.heteroscedastic, self.thresholds.values), sums]
        slopes = []
        if self.heteroscedastic:
            slopes = [np.zeros(len(block["weight"]), np.float32) for block in blocks]
            arrays += [*(block.row("weight") for block in blocks), *slopes]
        kernel(ratings.indptr, ratings.indices, ratings.values, *arrays, scale)
        if share:
            self._sums_of(cell.row.index)[:] += share / scale * sums
            for block, slope in zip(blocks, slopes, strict=False):
                block["slope"][:, 0] += np.float32(share / scale) * slope
        return 0.0

    def all_data_seen(self, circulation: Circulation, stream: Stream) -> None:
        """See `Law.all_data_seen`: moves the thresholds, then the scales, given their precision, which is drawn."""
        partials = []
        for pair in circulation.pairs():
            squares = {f"{b.factor.name}.scales": square_sum(b) for b in pair if b.factor in self.factors}
            partials.append([{"sums": self._sums_of(pair[0].index)} | squares])

        def finish(sums: dict[str, Float64]) -> dict[str, Float64]:
            rng = stream.generator(Purpose.THRESHOLDS)
            found = self.model.move(self.thresholds, sums["sums"], rng)
            for factor, n in zip(Factor, circulation.ratings.shape, strict=True):
                if factor in self.factors:
                    name = f"{factor.name}.scales"
                    found[name] = draw_precision(sums[name], n, rng)
            return found

        shapes = shapes_of(self.thresholds.arrays() | self.scales.arrays())
        found = circulation.ring.sum(partials, finish, shapes)
        for replicated in self.replicated:
            replicated.take(found)
        move_scales(circulation.blocks(), self.link, self.scales)

    def parameters(self) -> dict[str, Float64]:
        """See `Law.parameters`: the thresholds C, and the precisions of the scales."""
        return {"thresholds": self.thresholds.values} | self.scales.arrays()

    def saved(self, row_blocks: Iterable[int]) -> Iterator[tuple[Key, Array]]:
        """See `Law.saved`."""
        for b in row_blocks:
            yield Key("state", "W", b, "level_sums"), self._sums_of(b)

    def noise_scale(self, block: ParameterBlock) -> Float32:
        """See `Law.noise_scale`: s^2 times the root of the information of a rating, so that both rows' make it up."""
        scale = block.row("weight") ** 2 if self.heteroscedastic else super().noise_scale(block)
        return np.float32(np.sqrt(self._weight)) * scale

    def counts(self, circulation: Circulation) -> tuple[Counts, Counts]:
        """See `Law.counts`: each rating counts s^2 times its information."""
        both = self.weighted_counts(circulation, 2) if self.heteroscedastic else super().counts(circulation)
        weight = np.float32(self._weight)
        n, squares = (
            {block: factor * count for block, count in counts.items()}
            for counts, factor in zip(both, (weight, weight**2), strict=True)
        )
        return n, squares

    @classmethod
    def log_likelihood_of_predictors(
        cls, x: Float64, eta: Float64, scale: Float64, thresholds: Float64 | None
    ) -> Float64:
        """See `Law.log_likelihood_of_predictors`; differences are taken in the tail that they lie in."""
        from scipy.special import expit, ndtr

        assert thresholds is not None
        thresholds = np.atleast_2d(thresholds)
        cuts = np.full((len(thresholds), thresholds.shape[1] + 2), np.inf)
        cuts[:, 0], cuts[:, 1:-1] = -np.inf, thresholds
        level, owner = x.astype(np.int64), np.arange(len(x)) if len(cuts) > 1 else 0
        upper, lower = scale * (cuts[owner, level + 1] - eta), scale * (cuts[owner, level] - eta)
        flipped = lower + upper > 0
        cdf = expit if cls.link == "logit" else ndtr
        p = cdf(np.where(flipped, -lower, upper)) - cdf(np.where(flipped, -upper, lower))
        found: Float64 = np.log(np.maximum(p, 1e-300))
        return found

    # ------------------------------------------------------------------ of new ratings

    def probabilities(self, eta: Float32, cell: RatingsCell, rows: Int32, columns: Int32) -> Float32:
        """Probabilities of all levels, (q, R) float32, for (q,) local rows and columns of a cell's blocks."""
        scale = np.ones_like(eta)
        if self.heteroscedastic:
            scale = cell.row.row("weight")[rows] * cell.column.row("weight")[columns]
        return level_probabilities(self.link, eta, scale, self.thresholds.values)


class OrdinalLogit(Ordinal):
    """Ordered levels with the logistic distribution function: the proportional odds model [McCullagh 1980]."""

    link = "logit"
    largest_curvature = 0.5


class OrdinalProbit(Ordinal):
    """Ordered levels with the normal distribution function."""

    link = "probit"
    largest_curvature = 1.0
