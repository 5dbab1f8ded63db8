r"""Ratings of ordered levels [McCullagh 1980]: P(x at most level r) = F(s_i s_j (C_r - eta_ij)).

F is the logistic distribution function: the proportional odds model. The levels v_0 < v_1 ... are the values of the
training ratings; two levels, such as 0 and 1, give logistic regression. The thresholds C are learnt, and with them the
distances between levels; they also replace the training mean. Each user may have a set of thresholds
(`dsgmcmc.model.likelihoods.thresholds`). The scales s are 1, or each user, each item, or both have one
(`dsgmcmc.model.likelihoods.scales`).

In the factors' metric, tau is replaced by the average Fisher information of a rating at eta = 0, or by 0.6 times the
largest possible curvature of a rating if that is larger, so that rows unlike the average are stable, too. The largest
curvature is 1/4 for two levels and 1/2 for more.

[McCullagh 1980] Regression models for ordinal data, JRSS B 42.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, ClassVar

import numpy as np

from dsgmcmc.data.ratings import Ratings
from dsgmcmc.errors import InputError
from dsgmcmc.kernels.effects import Score, level_score
from dsgmcmc.kernels.ordinal import END, CutSide, level_moments, level_probabilities, level_tables, ordinal_kernel
from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.model.circulation import Circulation, RatingsCell
from dsgmcmc.model.likelihoods.base import LINK_WIDTH, Counts, Levels, State, times
from dsgmcmc.model.likelihoods.scales import SCALE_PRIOR, ScaledRows, ScalePrecision
from dsgmcmc.model.likelihoods.thresholds import (
    CUT_SLOPE,
    CUTS,
    GAP_DRIFT,
    GAP_PRIOR,
    GAP_QUANTITIES,
    GAP_START,
    GAPS,
    LEAST_LEVELS,
    GapPrecision,
    ThresholdModel,
    Thresholds,
    ThresholdSettings,
    cut_table,
    gap_information,
    gap_squares,
    keep_cut_slopes,
    move_gaps,
    set_cuts,
    slopes_of,
)
from dsgmcmc.model.parts.base import DrawContext, Intercept
from dsgmcmc.model.predictive.base import Moments, Predictive, PredictorDraws, nearest_level
from dsgmcmc.model.predictive.levels import LevelDistribution, log_probability
from dsgmcmc.model.predictive.mixture import Scores
from dsgmcmc.model.quantity import Quantity, Sampled
from dsgmcmc.parallel.ring import Ring, shapes_of, stacked
from dsgmcmc.settings import named
from dsgmcmc.targets.state import ParameterBlock, RandomStream, arrays_of, take_all
from dsgmcmc.types import Array, Factor, Float32, Float64, Int32, Purpose

#: Largest number of distinct ratings that count as levels and not as measurements; largest number of levels for which
#: thresholds can be learnt.
MAX_LEVELS, MAX_THRESHOLDS = 100, 25
#: Approximate Fisher information of a rating on the log scale of its row.
SCALE_INFORMATION = 0.8
_SIDES: tuple[CutSide, CutSide] = ("w", "h")


def scale_of(ratings: Ratings) -> Float64 | None:
    """Distinct training ratings, ascending, if they look like the levels of a scale; None if they are measurements.

    Ratings are taken for measurements if there are more than `MAX_LEVELS` distinct ones, or if they
    recur less than twice on average and some are neither whole nor half numbers.
    """
    values = ratings.levels(MAX_LEVELS)
    return values if values is not None and (2 * len(values) <= ratings.nnz or np.all(2 * values % 1 == 0)) else None


class Ordinal(ScaledRows):
    """Ratings of ordered levels."""

    has_noise = False
    replaces_mean = True
    Settings = ThresholdSettings
    width = LINK_WIDTH
    swept_fields = ("slope", CUT_SLOPE)
    defaults: ClassVar[dict[str, Any]] = {"noise_precision": 1.0}

    def _set_up(self, levels: Levels | None) -> None:
        """Make the model of the thresholds, and compute the information of a rating on its predictor."""
        assert levels is not None
        self.values, self.n_levels = levels.values, len(levels.values)
        self.model = ThresholdModel(levels.counts)
        if self.own_thresholds is not None:
            self._gap_information = gap_information(self.model)
        else:
            self.sums_name, self.sums_shape = "level_sums", (self.n_levels, 2)
        self._weight = max(self.model.information, 0.6 * (0.25 if self.n_levels == 2 else 0.5))

    @classmethod
    def quantities_with(cls, factors: tuple[Factor, ...], own_thresholds: Factor | None = None) -> tuple[Quantity, ...]:
        """The quantities of a chain, given the factors whose rows have noise scales, and thresholds, of their own."""
        cuts = () if own_thresholds is None else tuple(quantity.of(own_thresholds) for quantity in GAP_QUANTITIES)
        gaps = GapPrecision.about(()) if cuts else ()
        shared = (*Thresholds.about(()), *ScalePrecision.about(factors), *gaps)
        return (*super().quantities_with(factors), *cuts, *shared)

    def momenta_of(self, factor: Factor) -> dict[str, str]:
        """Fields of a factor's rows that hold N(0, 1) momenta of the likelihood's parameters, by name."""
        return super().momenta_of(factor) | ({"gaps": GAP_DRIFT} if factor == self.own_thresholds else {})

    @property
    def intercept(self) -> Intercept:
        """Intercept, or None; moving it and all biases of a factor by the same amount changes no probability.

        Here: the middle threshold, with which all other thresholds move.
        """
        middle = len(self.thresholds.position) // 2
        return Intercept(float(self.thresholds.position[middle]), float(self.model.prior_precision[middle]))

    def move_intercept(self, blocks: Iterable[ParameterBlock], step: float) -> None:
        """Move the intercept by `step`, and update the fields of blocks that depend on it."""
        self.thresholds.position[len(self.thresholds.position) // 2] += step
        for block in blocks:
            self.refresh_derived_fields(block)

    @property
    def replicated(self) -> tuple[Sampled, ...]:
        """The part's parameters that are the same on all processes."""
        return (self.thresholds, self.scales, self.gaps)

    @classmethod
    def read(cls, config: Any, ratings: Ratings, blocks: RatingBlocks, ring: Ring) -> Levels:
        """Read the part's data from the ratings file, once for all chains of a run. Collective.

        Here: the levels, and the number of training ratings at each level.
        """
        values = cls.levels_of(ratings)
        assert values is not None
        return Levels(values, blocks.level_counts(ring, len(values)))

    # ------------------------------------------------------------------ settings and ratings files

    @classmethod
    def levels_of(cls, ratings: Ratings) -> Float64 | None:
        """Levels of the training ratings, (R,) float64, if this likelihood has thresholds between levels; else None."""
        return ratings.levels(MAX_THRESHOLDS)

    @classmethod
    def check_ratings(cls, config: Any, ratings: Ratings) -> None:
        """Refuse ratings of one level or of too many levels, and of two levels if users are to have thresholds."""
        levels, likelihood = cls.levels_of(ratings), config.likelihood
        if levels is None:
            raise InputError(
                f"{ratings.path} has more than {MAX_THRESHOLDS} different training ratings, too many levels for "
                f"{likelihood}: use {named('likelihood')} gaussian, or round the ratings and prepare them again"
            )
        if len(levels) < 2:
            raise InputError(
                f"{ratings.path}: all training ratings are {levels[0]:g}, but {likelihood} needs at least two levels"
            )
        if config.thresholds != "shared" and len(levels) < LEAST_LEVELS:
            raise InputError(
                f"{ratings.path} has only the ratings {levels[0]:g} and {levels[1]:g}, and a user's bias already moves "
                "the one threshold between them: leave out thresholds"
            )

    @classmethod
    def codes(cls, values: Array, levels: Float64 | None) -> Array:
        """Ratings as this likelihood encodes them: the index of the nearest level, 1 for clicks, else the value."""
        assert levels is not None
        return nearest_level(values, levels).astype(values.dtype)

    # ------------------------------------------------------------------ training ratings

    def start(self, blocks: Iterable[ParameterBlock]) -> None:
        """Set the part's fields in blocks and its shared parameters to their initial values.

        Here: all scales become 1, all rows get the same thresholds, and momenta become 0.
        """
        self.thresholds = self.model.start()
        has_gaps = self.own_thresholds is not None
        self.gaps = GapPrecision(np.full(len(self.values) - 2, GAP_START) if has_gaps else None)
        super().start(blocks)

    def refresh_derived_fields(self, block: ParameterBlock) -> None:
        """Recompute a block's derived fields, after other fields or `replicated` were set from outside.

        Here: compute the thresholds of rows from their gaps.
        """
        if block.factor == self.own_thresholds:
            set_cuts(block, self.thresholds.position)

    def add_gradient(self, cell: RatingsCell, position: str, out: str, scale: float, share: float) -> float:
        """Add the gradient of a cell's energy, times `scale`, to `out` of both blocks."""
        ratings, blocks, cut_by = cell.ratings, (cell.row, cell.column), self.own_thresholds
        scaled = self.heteroscedastic or cut_by is not None
        side = None if cut_by is None else _SIDES[cut_by]
        kernel = ordinal_kernel(self.rank, self.biases, scaled, side, ratings.offsets is not None)
        arrays = [block[name] for name in (position, out) for block in blocks]
        if cut_by is None:
            tables, sums = level_tables(scaled, self.thresholds.values), np.zeros((len(self.values), 2))
        else:
            tables = cut_table(blocks[cut_by])
            sums = np.zeros(tables.shape)
        slopes = [np.zeros(len(block.counts), np.float32) for block in blocks] if scaled else []
        arrays += [tables, sums, *(self.row_scale(block) for block in blocks[: len(slopes)]), *slopes]
        kernel(*ratings.arrays, *arrays, scale)
        if share and cut_by is not None:
            keep_cut_slopes(blocks[cut_by], sums, share / scale)
        elif share:
            self.sums_of(cell.row.index)[:] += share / scale * sums
        if share and self.heteroscedastic:
            self.keep_slopes(blocks, slopes, share / scale)
        return 0.0

    def scores(self, cell: RatingsCell) -> tuple[Score, Float32]:
        """Score at noise precision 1, and its arguments.

        Here: the thresholds on either side of a rating, and the rating's scale if there are scales.
        """
        ratings, blocks, cut_by = cell.ratings, (cell.row, cell.column), self.own_thresholds
        level, places = ratings.values.astype(np.intp), (ratings.rows, ratings.indices)
        table = np.concatenate([[-END], self.thresholds.values, [END]]).astype(np.float32)[None]
        owner: Any = 0
        if cut_by is not None:
            table, owner = cut_table(blocks[cut_by]), places[cut_by]
        terms = [table[owner, level + 1], table[owner, level]]
        if self.heteroscedastic:
            of_row, of_column = (self.row_scale(block)[at] for block, at in zip(blocks, places, strict=True))
            terms.append(of_row * of_column)
        return level_score(self.heteroscedastic), np.stack(terms)

    def draw(self, context: DrawContext) -> None:
        """Draw the parameters that `draw_shared` does not draw, if they are due (`DrawContext.is_turn`). Collective.

        Here: move the thresholds and draw the precisions of scales and gaps; then move the scales and gaps.

        Thresholds, scales and gaps move once a sweep, from the gradient at one state. Their precisions are drawn when
        the other hyperparameters are, not earlier: at the start all scales and gaps are equal, and a precision drawn
        from equal values would hold them there for hundreds of sweeps.
        """
        circulation, cut_by, earlier, partials = context.circulation, self.own_thresholds, self.gaps.precision, []
        slopes = {block: slopes_of(block) for block in circulation.blocks() if block.factor == cut_by}
        for pair in circulation.pairs():
            sums = self.square_sums(pair)
            if cut_by is None:
                sums["slopes"] = self.sums_of(pair[0].index)
            else:
                sums |= {"slopes": slopes[pair[cut_by]].sum(axis=0), GAPS: gap_squares(pair[cut_by])}
            partials.append(sums)
        rows = dict(zip(Factor, circulation.ratings.shape, strict=True))
        shapes = shapes_of(arrays_of(self.replicated))
        finish = partial(self._finish, context.stream, rows, context.is_turn())
        take_all(self.replicated, circulation.ring.sum(stacked(partials), finish, shapes))
        self.move_scales(circulation.blocks(), SCALE_INFORMATION)
        for block, slope in slopes.items():
            assert earlier is not None
            assert self.gaps.precision is not None
            move_gaps(block, slope, self._gap_information, earlier, self.gaps.precision)
            self.refresh_derived_fields(block)

    def _finish(
        self, stream: RandomStream, rows: dict[Factor, int], is_turn: bool, sums: dict[str, Float64]
    ) -> dict[str, Float64]:
        """Move the thresholds and, if due, draw the precisions, from the sums over all blocks; runs at the root."""
        rng, cut_by, slopes = stream.generator(Purpose.THRESHOLDS), self.own_thresholds, sums["slopes"]
        if cut_by is None:
            slopes = self.model.slopes(self.thresholds.position, slopes)
        drawn = self.scales.arrays() | self.gaps.arrays() | self.model.move(self.thresholds, slopes, rng)
        if not is_turn:
            return drawn
        for factor in Factor:
            if factor in self.factors:
                name = f"{factor.name}.scales"
                drawn[name] = SCALE_PRIOR.draw(sums[name], rows[factor], rng)
        if cut_by is not None:
            drawn["thresholds.precision"] = GAP_PRIOR.draw(sums[GAPS], rows[cut_by], rng)
        return drawn

    def noise_scale(self, block: ParameterBlock) -> Float32:
        """Noise scales g of a block's rows, (n,) float32; 1 if all rows have the same noise.

        Here: s^2 times the square root of a rating's information, so that the product of both rows contains it once.
        """
        return np.float32(np.sqrt(self._weight)) * self.row_scale(block) ** 2

    def counts(self, circulation: Circulation) -> tuple[Counts, Counts]:
        """For every row, sums over its ratings of their weights and squared weights in the information.

        Here: a rating's weight is s_i^2 s_j^2 times its information. Collective.
        """
        both = self.weighted_counts(circulation, 2) if self.heteroscedastic else super().counts(circulation)
        return times(both, np.float32(self._weight))

    @classmethod
    def log_likelihood_of_predictors(
        cls, x: Float64, eta: Float64, scale: Float64, thresholds: Array | None
    ) -> Float64:
        """Log density of ratings given their predictors, (n,) float64; for likelihoods that are not Gaussian.

        Differences of F are computed in the nearer tail, where they lose no digits.
        """
        from scipy.special import expit

        assert thresholds is not None
        thresholds = np.atleast_2d(thresholds)
        cuts = np.full((len(thresholds), thresholds.shape[1] + 2), np.inf)
        cuts[:, 0], cuts[:, 1:-1] = -np.inf, thresholds
        level, owner = x.astype(np.int64), np.arange(len(x)) if len(cuts) > 1 else 0
        upper, lower = scale * (cuts[owner, level + 1] - eta), scale * (cuts[owner, level] - eta)
        flipped = lower + upper > 0
        p = expit(np.where(flipped, -lower, upper)) - expit(np.where(flipped, -upper, lower))
        log_density: Float64 = np.log(np.maximum(p, 1e-300))
        return log_density

    # ------------------------------------------------------------------ new ratings

    def state(self, eta: Float32, cell: RatingsCell, rows: Int32, columns: Int32, tau: float) -> State:
        """Distributions of q ratings at one state, given their predictors and their rows and columns in the cell."""
        scale = np.ones_like(eta)
        if self.heteroscedastic:
            scale = cell.row.row("weight")[rows] * cell.column.row("weight")[columns]
        if self.own_thresholds is None:
            probability = level_probabilities(eta, scale, self.thresholds.values)
        else:
            block, owner = ((cell.row, rows), (cell.column, columns))[self.own_thresholds]
            probability = level_probabilities(eta, scale, block[CUTS], owner)
        return State(*level_moments(probability, self.values), probability)

    def log_likelihood(self, x: Float32, state: State) -> float:
        """Sum of the log densities of ratings, given their distributions; all may share one variance, (1,).

        A rating that is not a level counts as the nearest level.
        """
        return float(log_probability(state.probability, nearest_level(x, self.values)).sum())

    @classmethod
    def _by_draw(cls, draws: PredictorDraws) -> Iterator[Float32]:
        """Probabilities of the levels at every draw, (q, R)."""
        assert draws.thresholds is not None
        for d, cuts in enumerate(draws.thresholds):
            yield level_probabilities(draws.eta[:, d], np.reciprocal(draws.noise[:, d]), cuts, draws.owner)

    @classmethod
    def predictive(cls, draws: PredictorDraws, centre: float = 0.0, levels: Float64 | None = None) -> Predictive:
        """Posterior predictive distributions of ratings: mixtures over draws of their predictors."""
        assert levels is not None
        probability = np.zeros((len(draws.eta), len(levels)), np.float32)
        for share, some in draws.over_effects():
            for weight, p in zip((share * some.weights).tolist(), cls._by_draw(some), strict=True):
                probability += np.float32(weight) * p
        return LevelDistribution(probability, levels)

    @classmethod
    def expectation(cls, draws: PredictorDraws, centre: float = 0.0, levels: Float64 | None = None) -> Predictive:
        """Posterior distributions of the expected ratings, without noise; parameters as for `predictive`."""
        assert levels is not None
        nodes, draws = draws.over_effects(), draws.known()
        means = np.zeros_like(draws.eta)
        for share, some in nodes:
            at_draws = [level_moments(p, levels)[0] for p in cls._by_draw(some)]
            means += np.float32(share) * np.stack(at_draws, axis=1)
        return Scores(means, draws.spread, draws.weights)

    @classmethod
    def predictive_of_moments(cls, moments: Moments) -> Predictive:
        """Posterior predictive distributions, from moments over draws."""
        assert moments.probability is not None
        assert moments.levels is not None
        return LevelDistribution(moments.probability, moments.levels)
