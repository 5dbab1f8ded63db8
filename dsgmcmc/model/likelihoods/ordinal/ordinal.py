r"""Ratings of ordered levels [McCullagh 1980]: Pr(x at most level k) = F(s_i s_j (C_k - eta_ij)).

F is the logistic distribution function: the proportional odds model. The levels v_0 < v_1 ... are
the values of the training ratings; two levels, such as 0 and 1, give logistic regression. The
thresholds C are learnt (`dsgmcmc.model.likelihoods.ordinal.thresholds`) and replace the training
mean. All rows share one set, or each row of one factor has its own
(`dsgmcmc.model.likelihoods.ordinal.row_thresholds`). The scales s of users, of items, or of both
are sampled, or all are 1 (`dsgmcmc.model.likelihoods.row_scales`).

In the factors' metric, tau is replaced by the average Fisher information of a rating at eta = 0, or
by 0.6 times a rating's largest curvature (1/4 for two levels, 1/2 for more) if that is larger: rows
unlike the average are stable, too.

[McCullagh 1980] Regression models for ordinal data, JRSS B 42.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import BaseModel
from typing_extensions import override

from dsgmcmc.errors import InputError
from dsgmcmc.kernels.effects import Score, level_score
from dsgmcmc.kernels.ordinal import (
    END,
    level_moments,
    level_probabilities,
    level_tables,
    ordinal_kernel,
)
from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.model.circulation import Circulation, RatingsCell
from dsgmcmc.model.likelihoods.base import LINK_WIDTH, RatingWeights, State
from dsgmcmc.model.likelihoods.ordinal.levels import Levels
from dsgmcmc.model.likelihoods.ordinal.logit_moves import move_elements
from dsgmcmc.model.likelihoods.ordinal.logit_weights import (
    LogitWeights,
    NormalRatings,
    draw_threshold,
)
from dsgmcmc.model.likelihoods.ordinal.observation import LevelObservation
from dsgmcmc.model.likelihoods.ordinal.own_levels import OwnLevels, count_levels
from dsgmcmc.model.likelihoods.ordinal.row_thresholds import (
    CUT_SLOPE,
    CUTS,
    GAP_DRIFT,
    GAP_PRIOR,
    GAP_QUANTITIES,
    GAP_START,
    GAPS,
    GapPrecision,
    anchored,
    common_scale,
    cut_table,
    cuts_of,
    move_gaps,
    scaled_numbers,
    slopes_of,
    weight_sums,
)
from dsgmcmc.model.likelihoods.ordinal.thresholds import ThresholdModel, Thresholds
from dsgmcmc.model.likelihoods.row_scales import SCALE_PRIOR, ScaledRows, ScalePrecision
from dsgmcmc.model.parts.base import DrawContext, Intercept, ModelFacts
from dsgmcmc.model.predictive.base import nearest_level
from dsgmcmc.model.predictive.levels import log_probability
from dsgmcmc.model.quantity import Quantity, Sampled
from dsgmcmc.orientation import Orientation
from dsgmcmc.parallel.ring import Ring, shapes_of
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.item_levels import (
    levels_of_items,
    observed_levels,
    with_said_levels,
)
from dsgmcmc.settings import named, setting
from dsgmcmc.targets.state import ParameterBlock, RandomStream, Rows, arrays_of, take_all
from dsgmcmc.types import Factor, Float32, Float64, Int32, Purpose, ThresholdsName

#: More distinct ratings count as measurements, not as levels.
MAX_LEVELS = 100
#: Largest number of levels between which thresholds can be learnt.
MAX_THRESHOLDS = 25
#: Smallest number of levels with a gap between thresholds.
LEAST_LEVELS = 3
#: Approximate Fisher information of a rating on the log scale of its row.
SCALE_INFORMATION = 0.8


class ThresholdSettings(BaseModel):
    """Settings of thresholds."""

    thresholds: ThresholdsName = setting(
        "Thresholds of ordinal likelihoods: one set, or one per user or item, whose levels may"
        " differ.",
        "shared",
        shown="shared; item if items clearly differ in their levels",
    )
    item_levels: Literal["observed", "expected"] = setting(
        "Levels of items with own thresholds: those observed, or all but those that lack expected"
        " ratings.",
        "expected",
        shown="observed; expected in runs that were begun without the setting",
        offered=False,
        later=True,
    )


def recognised_levels(ratings: Ratings) -> Float64 | None:
    """Distinct training ratings, ascending, if they look like levels, not like measurements.

    Ratings count as measurements if they have more than `MAX_LEVELS` distinct values, or if a value
    occurs less than twice on average and some values are neither whole nor half numbers, or if some
    are known only by bounds. None is returned for them.
    """
    values = ratings.levels(MAX_LEVELS)
    if values is None or ratings.has_bounds:
        return None
    values_recur = 2 * len(values) <= ratings.nnz
    if values_recur or np.all(2 * values % 1 == 0):
        return values
    return None


class Ordinal(LevelObservation, ScaledRows):
    """Ratings of ordered levels."""

    has_noise = False
    replaces_mean = True
    Settings = ThresholdSettings
    width = LINK_WIDTH
    swept_fields = ("slope", CUT_SLOPE)
    defaults: ClassVar[dict[str, Any]] = {"noise_precision": 1.0}

    @override
    def _set_up(self, levels: Levels | None) -> None:
        """Make the model of the thresholds; compute the information that replaces tau."""
        assert levels is not None
        self.values = levels.values
        self.n_levels = len(levels.values)
        self.model = ThresholdModel(levels.counts, levels.spans)
        self._own_levels = None
        # runs that were begun before items had the observed levels keep the metric of scales of 1
        self._follows_scales = levels.anchored and bool(self.factors)
        if levels.of_rows is not None:
            self._own_levels = OwnLevels(levels.of_rows, anchored=levels.anchored)
        if self.cut_by is not None:
            self._gap_information = self.model.gap_information()
        else:
            self.sums_name = "level_sums"
            self.sums_shape = (self.n_levels, 2)
        self._weights = LogitWeights()
        largest_curvature = 0.25 if self.n_levels == 2 else 0.5
        self._information = max(self.model.information, 0.6 * largest_curvature)

    @classmethod
    @override
    def quantities_with(
        cls, factors: tuple[Factor, ...], cut_by: Factor | None = None
    ) -> tuple[Quantity, ...]:
        cuts: tuple[Quantity, ...] = ()
        gaps: tuple[Quantity, ...] = ()
        if cut_by is not None:
            cuts = tuple(quantity.for_factor(cut_by) for quantity in GAP_QUANTITIES)
            gaps = GapPrecision.about(())
        return (
            *super().quantities_with(factors),
            *cuts,
            *Thresholds.about(()),
            *ScalePrecision.about(factors),
            *gaps,
        )

    @override
    def momenta_of(self, factor: Factor) -> dict[str, str]:
        momenta = super().momenta_of(factor)
        if factor == self.cut_by:
            momenta["gaps"] = GAP_DRIFT
        return momenta

    @classmethod
    @override
    def cut_factor(cls, settings: ThresholdSettings, orientation: Orientation) -> Factor | None:
        factors = orientation.factors_of(settings.thresholds)
        return factors[0] if factors else None

    @property
    @override
    def intercept(self) -> Intercept:
        """The middle threshold, with which all other thresholds move."""
        middle = len(self.thresholds.position) // 2
        return Intercept(
            value=float(self.thresholds.position[middle]),
            precision=float(self.model.prior_precision[middle]),
        )

    @override
    def move_intercept(self, blocks: Iterable[ParameterBlock], step: float) -> None:
        self.thresholds.position[len(self.thresholds.position) // 2] += step
        for block in blocks:
            self.refresh_derived_fields(block)

    @property
    @override
    def replicated(self) -> tuple[Sampled, ...]:
        return (self.thresholds, self.scales, self.gaps)

    @classmethod
    @override
    def read(
        cls, settings: ThresholdSettings, ratings: Ratings, blocks: RatingBlocks, ring: Ring
    ) -> Levels:
        """Read the part's data from the ratings file, once for all chains of a run. Collective.

        Here: the levels, and the number of training ratings at each level: at least 1, because a
        comparison may hold out all ratings of a rare level. If items have thresholds, those of
        every item: a level with a test rating is one of the item, so that no test rating has
        probability 0.
        """
        values = cls.levels_of(ratings)
        assert values is not None
        levels = Levels(values, np.maximum(blocks.level_counts(ring, len(values)), 1))
        if settings.thresholds != "item":
            return levels
        items = ratings.orientation.factor_of("item")
        counts = count_levels(blocks, ring, items, values)
        observed = settings.item_levels == "observed"
        rule = levels_of_items
        if observed:
            rule = observed_levels
        has = rule(counts.train) | (counts.test > 0)
        if ratings.said_levels is not None:
            has = with_said_levels(has, values, ratings.said_levels)
        if has.all():
            return levels
        spans = OwnLevels(has).spans(counts.train)
        return levels._replace(of_rows=has, spans=spans, anchored=observed)

    # ------------------------------------------------------------------ settings and ratings files

    @classmethod
    @override
    def has_normal_rows(cls) -> bool:
        """Whether rows are normal given the other factor, the ratings and `draw_weights`.

        Here: with two levels, which `check_ratings` requires for Gibbs sampling.
        """
        return True

    @classmethod
    @override
    def check(cls, settings: BaseModel, model: ModelFacts) -> None:
        """Refuse scales of users and items with samplers that draw rows."""
        if model.sampler.draws_conditionals and model.noise != "shared":
            raise InputError(
                f"{named('sampler')} {model.sampler.name} cannot draw the scales of users and"
                f" items that {model.likelihood} has with {named('noise')}: leave out"
                f" {named('noise')}, or use {named('sampler')} baoab"
            )

    @classmethod
    @override
    def levels_of(cls, ratings: Ratings) -> Float64 | None:
        return ratings.levels(MAX_THRESHOLDS)

    @classmethod
    @override
    def check_ratings(
        cls, settings: ThresholdSettings, model: ModelFacts, ratings: Ratings
    ) -> None:
        levels = cls.levels_of(ratings)
        if levels is None:
            raise InputError(
                f"{ratings.path} has more than {MAX_THRESHOLDS} different training ratings, too"
                f" many levels for {model.likelihood}: use {named('likelihood')} gaussian, or"
                " round the ratings and prepare them again"
            )
        if len(levels) < 2:
            raise InputError(
                f"{ratings.path}: all training ratings are {levels[0]:g}; {model.likelihood} needs"
                " two levels"
            )
        if model.sampler.draws_conditionals and len(levels) > 2:
            raise InputError(
                f"{ratings.path} has {len(levels)} levels, and {named('sampler')}"
                f" {model.sampler.name} can draw rows of {model.likelihood} only with two: use"
                f" {named('sampler')} baoab"
            )
        if settings.thresholds != "shared" and len(levels) < LEAST_LEVELS:
            raise InputError(
                f"{ratings.path} has only the ratings {levels[0]:g} and {levels[1]:g}, and the"
                f" bias of a {settings.thresholds} already moves the one threshold between them:"
                f" leave out {named('thresholds')}"
            )

    # ------------------------------------------------------------------ training ratings

    @override
    def start(self, blocks: Iterable[ParameterBlock]) -> None:
        """Set the part's fields in blocks and its shared parameters to their initial values.

        Here: all scales become 1, all rows get the same thresholds, and momenta become 0.
        """
        self.thresholds = self.model.start()
        self.gaps = GapPrecision(None)
        if self.cut_by is not None:
            self.gaps = GapPrecision(np.full(self.n_levels - 2, GAP_START))
        super().start(blocks)

    @override
    def refresh_derived_fields(self, rows: Rows) -> None:
        """Compute the thresholds of rows from their gaps, if the rows have thresholds."""
        if rows.factor != self.cut_by:
            return
        cuts = cuts_of(self.thresholds.position, rows.joined(GAPS, np.float64))
        if self._own_levels is not None:
            cuts = anchored(cuts, self.thresholds.position, self._own_levels.anchors(rows))
            cuts = self._own_levels.cuts(rows, cuts)
        for block, block_cuts in rows.by_block(cuts):
            block[CUTS][:] = block_cuts

    @override
    def add_gradient(
        self, cell: RatingsCell, position: str, out: str, *, scale: float, share: float
    ) -> float:
        blocks = (cell.row, cell.column)
        scaled = self.heteroscedastic or self.cut_by is not None
        if self.cut_by is None:
            tables = level_tables(scaled, self.thresholds.values)
            sums = np.zeros((self.n_levels, 2))
        else:
            tables = cut_table(blocks[self.cut_by])
            sums = np.zeros(tables.shape)
        scales: list[Float32] = []
        slopes: list[Float32] = []
        if scaled:
            scales = [self.row_scale(block) for block in blocks]
            slopes = [np.zeros(len(block.counts), np.float32) for block in blocks]
        has_offsets = cell.ratings.offsets is not None
        kernel = ordinal_kernel(
            self.rank, self.biases, scaled=scaled, cut_by=self.cut_by, offset=has_offsets
        )
        kernel(*cell.arguments(position, out), tables, sums, *scales, *slopes, scale)
        if share:
            self._keep_sums(cell, sums, slopes, share / scale)
        return 0.0

    def _keep_sums(
        self, cell: RatingsCell, sums: Float64, slopes: Sequence[Float32], share: float
    ) -> None:
        """Add `share` times a cell's derivatives to the sums over the sweep.

        `sums` are those of thresholds, `slopes` those of the scales of rows and of columns.
        """
        blocks = (cell.row, cell.column)
        if self.cut_by is None:
            self.sums_of(cell.row.index)[:] += share * sums
        else:
            cut_slopes = sums[:, 1:-1].astype(np.float32)
            blocks[self.cut_by][CUT_SLOPE][:] += np.float32(share) * cut_slopes
        if self.heteroscedastic:
            for block, slope in zip(blocks, slopes, strict=True):
                self.keep_slopes(block, slope, share)

    @override
    def scores(self, cell: RatingsCell) -> tuple[Score, Float32]:
        """Score at noise precision 1, and its arguments.

        Here: the thresholds on either side of a rating, and the rating's scale if there are scales.
        """
        ratings = cell.ratings
        level = ratings.values.astype(np.intp)
        if self.cut_by is None:
            ends = np.concatenate([[-END], self.thresholds.values, [END]]).astype(np.float32)
            terms = [ends[level + 1], ends[level]]
        else:
            table = cut_table((cell.row, cell.column)[self.cut_by])
            owner = (ratings.rows, ratings.indices)[self.cut_by]
            terms = [table[owner, level + 1], table[owner, level]]
        if self.heteroscedastic:
            row_scale = self.row_scale(cell.row)[ratings.rows]
            column_scale = self.row_scale(cell.column)[ratings.indices]
            terms.append(row_scale * column_scale)
        return level_score(self.heteroscedastic), np.stack(terms)

    @override
    def draw(self, context: DrawContext) -> None:
        """Move the thresholds, draw the precisions of scales and gaps, and move scales and gaps.

        Collective.

        Thresholds, scales and gaps move once a sweep, from the gradient at one state. Their
        precisions are drawn when the other hyperparameters are, not earlier: at the start all
        scales and gaps are equal, and a precision drawn from equal values would keep them equal for
        hundreds of sweeps. In Gibbs sampling, `draw_weights` draws the threshold.
        """
        if context.factor is not None:
            return
        circulation = context.circulation
        sums = self.square_sums(circulation)
        if self.cut_by is None:
            sums["slopes"] = self.block_sums(circulation)
            self._update_shared(context, sums)
            self.move_scales(circulation, SCALE_INFORMATION)
            return

        rows = next(rows for rows in circulation.rows_by_factor() if rows.factor == self.cut_by)
        slopes = slopes_of(rows, self.thresholds.position, self._own_levels)
        sums["slopes"] = np.array([part.sum(axis=0) for _, part in rows.by_block(slopes.shared)])
        squares = [np.square(block[GAPS], dtype=np.float64) for block in rows.blocks]
        sums[GAPS] = np.array([square.sum(axis=0) for square in squares])
        if self._follows_scales:
            sums |= weight_sums(circulation.rows_by_factor(), self.factors)
        earlier = self.gaps.precision
        self._update_shared(context, sums)
        self.move_scales(circulation, SCALE_INFORMATION)
        assert earlier is not None
        assert self.gaps.precision is not None
        n = rows.n_data
        information = self._gap_information
        if self._follows_scales:
            n = scaled_numbers(rows, self.factors)
            information = information * self.model.gap_growth(self.thresholds)
        move_gaps(
            rows,
            slopes.own,
            n=n,
            information=information,
            earlier=earlier,
            precision=self.gaps.precision,
        )
        self.refresh_derived_fields(rows)

    def _update_shared(self, context: DrawContext, sums: dict[str, Float64]) -> None:
        """Update what all rows share, on all processes, given this process's sums. Collective."""
        circulation = context.circulation
        finish = partial(
            self._draw_at_root,
            stream=context.stream,
            rows=circulation.ratings.shape,
            draws_precisions=context.is_due(),
        )
        shapes = shapes_of(arrays_of(self.replicated))
        take_all(self.replicated, circulation.ring.sum(sums, finish, shapes))

    def _draw_at_root(
        self,
        sums: dict[str, Float64],
        *,
        stream: RandomStream,
        rows: tuple[int, int],
        draws_precisions: bool,
    ) -> dict[str, Float64]:
        """Move the thresholds and, if due, draw the precisions, from the sums over all blocks.

        `rows` are the numbers of rows of both factors.
        """
        rng = stream.generator(Purpose.THRESHOLDS)
        slopes = sums["slopes"]
        if self.cut_by is None:
            slopes = self.model.slopes(self.thresholds.position, slopes)
        moved = self.model.move(self.thresholds, slopes, rng, common_scale(sums))
        drawn = self.scales.arrays() | self.gaps.arrays() | moved
        if not draws_precisions:
            return drawn
        for factor in sorted(self.factors):
            name = f"{factor.name}.scales"
            drawn[name] = SCALE_PRIOR.draw(sums[name], rows[factor], rng)
        if self.cut_by is not None:
            drawn["thresholds.precision"] = GAP_PRIOR.draw(sums[GAPS], rows[self.cut_by], rng)
        return drawn

    @override
    def draw_weights(self, context: DrawContext) -> None:
        """Move elements of rows, draw the ratings' weights, and the threshold. Collective."""
        for factor in Factor:
            move_elements(context, factor, self._threshold)
        sums = self._weights.draw(context, self._threshold)

        def finish(total: dict[str, Float64]) -> dict[str, Float64]:
            rng = context.stream.generator(Purpose.THRESHOLDS)
            precision = float(self.model.prior_precision[0])
            drawn = draw_threshold(precision, total["weights"], rng)
            return {"threshold": np.full(1, drawn)}

        ring = context.circulation.ring
        drawn = ring.sum({"weights": sums}, finish, {"threshold": (1,)})
        self.thresholds.position = drawn["threshold"]

    @property
    def _threshold(self) -> float:
        """The threshold between two levels."""
        return float(self.thresholds.position[0])

    @override
    def normal_ratings(self, cell: RatingsCell, factor: Factor) -> NormalRatings:
        return self._weights.normal_ratings(cell, factor, self._threshold)

    @override
    def conditional_scale(self, block: ParameterBlock) -> Float32:
        """Numbers by which tau times a row's statistics are multiplied, (n,) float32.

        Here: 1, because the statistics contain the precisions of all ratings.
        """
        return np.ones(len(block.counts), np.float32)

    @override
    def noise_scale(self, block: ParameterBlock) -> Float32:
        """Noise scales g of a block's rows, (n,) float32; 1 if all rows have the same noise.

        Here: s^2 times the square root of the information that replaces tau in the metric, so that
        the product of both rows' values contains this information once.
        """
        return np.float32(np.sqrt(self._information)) * self.row_scale(block) ** 2

    @override
    def counts(self, circulation: Circulation) -> RatingWeights:
        """For every row, the sums of its ratings' weights in the information, and of their squares.

        Collective.

        Here: a rating's weight is s_i^2 s_j^2 times the information that replaces tau in the
        metric.
        """
        if self.heteroscedastic:
            weights = self.weighted_counts(circulation, power=2)
        else:
            weights = super().counts(circulation)
        return weights.times(np.float32(self._information))

    # ------------------------------------------------------------------ new ratings

    @override
    def state(
        self, eta: Float32, cell: RatingsCell, rows: Int32, columns: Int32, *, tau: float
    ) -> State:
        scale = self.row_scale(cell.row)[rows] * self.row_scale(cell.column)[columns]
        if self.cut_by is None:
            probability = level_probabilities(eta, scale, self.thresholds.values)
        else:
            block = (cell.row, cell.column)[self.cut_by]
            owner = (rows, columns)[self.cut_by]
            probability = level_probabilities(eta, scale, block[CUTS], owner)
        mean, variance = level_moments(probability, self.values)
        return State(mean, variance, probability)

    @override
    def log_likelihood(self, x: Float32, state: State) -> float:
        """Sum of the log probabilities of ratings; one that is no level counts as the nearest."""
        return float(log_probability(state.probability, nearest_level(x, self.values)).sum())
