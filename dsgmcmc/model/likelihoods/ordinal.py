r"""Ratings of ordered levels [McCullagh 1980]: Pr(x at most level k) = F(s_i s_j (C_k - eta_ij)).

F is the logistic distribution function: the proportional odds model. The levels v_0 < v_1 ... are
the values of the training ratings; two levels, such as 0 and 1, give logistic regression. The
thresholds C are learnt, and with them the distances between levels; they also replace the training
mean. All users share one set of thresholds, or each user has one. The scales s of users, of items,
or of both are sampled, or all are 1 (`dsgmcmc.model.likelihoods.scales`).

In the factors' metric, tau is replaced by the average Fisher information of a rating at eta = 0, or
by 0.6 times the largest possible curvature of a rating if that is larger, so that rows unlike the
average are stable, too. The largest curvature is 1/4 for two levels and 1/2 for more.

*Thresholds*. R levels have R - 1 thresholds C_0 < C_1 < ... Their coordinates phi are the middle
threshold, of index m = (R - 1) // 2, and the logarithms of the gaps between neighbours, so that
thresholds stay in order:

    C_m = phi_m      C_{k+1} = C_k + exp(phi_{k+1}) (k >= m)      C_{k-1} = C_k - exp(phi_{k-1}) (k <= m)

Priors: phi_m ~ N(0, 5^2), the log gaps ~ N(0, 3^2); the ratings at a single level outweigh these
priors.

Thresholds are moved once a sweep, from the gradient at the same state as the factors, by BAOAB
[Leimkuhler & Matthews 2013] in the metric P, as `dsgmcmc.samplers.baoab` moves the factors: with L
L^T = P and the momentum r,

    r     <- r - h L^-1 grad U
    r'     = c r + sqrt(1 - c^2) z
    phi   <- phi + (h / 2) L^-T (r + r'),      r <- r'

P is the dense Fisher information on phi, at eta = 0 and at thresholds that fit the levels' shares
in the training ratings, plus the prior's precision. It depends on the data alone, so the moves need
no correction for a metric that changes. The move uses other coordinates:

- The middle threshold is replaced by the threshold nearest the median rating, the *anchor* a; C_m
  is C_a plus or minus the gaps between them. Otherwise a precisely known threshold could be a sum
  of gaps on which few ratings carry information: the direction in which that sum is constant would
  rotate with every step, while P is constant.
- A log gap is replaced by y: the gap is log(1 + exp(y)) times its initial value, so that it grows
  in proportion to y where it is large. In log gaps, curvatures would grow with the square of the
  gap, without a bound, and chains would diverge on nearly separable ratings, whose gaps are large.

The prior is still that of phi; the energy in y therefore has the term -log(d phi / d y). A shift of
all thresholds is equivalent to an opposite shift of all predictors; in the coordinates in which P
is the identity, the coupling of this shift to each of the two biases is at most 1. With h^2 = 2 eps
/ l, eps = 0.35 and l = 2, curvatures of up to 11 are stable. Kicks are clipped at 3, as those of
scales are.

*Thresholds of each user.* User i has the coordinates phi + f(d_i): gaps between neighbours are
exp(f(d_ik)) times the shared gaps, and f(d) = 2 tanh(d / 2) keeps this ratio between exp(-2) and
exp(2), as scales are bounded (`dsgmcmc.model.likelihoods.scales`). The middle threshold is shared,
because the user's bias already shifts all thresholds. So thresholds stay in order, and are shrunk
towards the shared ones:

    d_ik ~ N(0, 1 / lambda_k)      lambda_k ~ Gamma(1, rate 0.1), for each gap k

lambda_k is drawn from Gamma(1 + n / 2, 0.1 + sum_i d_ik^2 / 2). The d are moved once a sweep by
BAOAB, as thresholds and scales are, from the same gradient, row by row in the diagonal metric a_k
n_i + lambda_k: n_i is the number of the row's ratings, a_k the largest Fisher information of a
rating on log gap k, at the initial thresholds; the maximum is over all predictors, because users
differ in the levels that they use. The half kick that ends a step uses the old lambda, the half
kick that begins the next step the new lambda; so the momentum is independent of d when lambda is
drawn.

Fields of a block: ``cuts`` holds the thresholds, which are saved with draws; ``cut_slope``
accumulates the derivatives of the log likelihood with respect to them; ``gaps`` is d, and
``gap_drift`` its momentum. Blocks of the other factor have these fields, too, with value 0.

[McCullagh 1980] Regression models for ordinal data, JRSS B 42.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from pydantic import BaseModel

from dsgmcmc.data.ratings import Ratings
from dsgmcmc.errors import InputError
from dsgmcmc.kernels.effects import Score, level_score
from dsgmcmc.kernels.formula import Formula
from dsgmcmc.kernels.ordinal import (
    END,
    level_moments,
    level_probabilities,
    level_tables,
    ordinal_kernel,
)
from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.model.circulation import Circulation, RatingsCell
from dsgmcmc.model.conjugate import GammaPrior
from dsgmcmc.model.likelihoods.base import LINK_WIDTH, Counts, Levels, State, with_weight
from dsgmcmc.model.likelihoods.scales import (
    FRICTION,
    MOVE,
    SCALE_PRIOR,
    SPREAD,
    STEP,
    ScaledRows,
    ScalePrecision,
)
from dsgmcmc.model.parts.base import DrawContext, Intercept
from dsgmcmc.model.predictive.base import Moments, Predictive, PredictorDraws, nearest_level
from dsgmcmc.model.predictive.levels import LevelDistribution, log_probability
from dsgmcmc.model.predictive.mixture import Scores
from dsgmcmc.model.quantity import Quantity, Sampled
from dsgmcmc.parallel.ring import Ring, shapes_of
from dsgmcmc.settings import named, setting
from dsgmcmc.targets.state import ParameterBlock, RandomStream, Rows, arrays_of, take_all
from dsgmcmc.types import Array, Factor, Float32, Float64, Int32, Int64, Purpose, ThresholdsName

#: More than `MAX_LEVELS` distinct ratings count as measurements, not as levels. Thresholds can be
#: learnt for at most `MAX_THRESHOLDS` levels.
MAX_LEVELS, MAX_THRESHOLDS = 100, 25
#: Approximate Fisher information of a rating on the log scale of its row.
SCALE_INFORMATION = 0.8

MIDDLE_SD, GAP_SD = 5.0, 3.0  # sds of the priors of the middle threshold and of the log gaps

CUTS, CUT_SLOPE = "cuts", "cut_slope"
GAPS, GAP_DRIFT = "gaps", "gap_drift"
GAP_SLOPE = "gap_slope"  # array of `move_gaps`, kept so that no table of addresses is built again
GAP_PRIOR = GammaPrior(1.0, 0.1)  # prior of lambda
GAP_START = 10.0  # precision of d before it is first drawn
MAX_DEVIATION = 2.0  # bound on |f(d)|
#: Smallest number of levels with a gap between thresholds.
LEAST_LEVELS = 3

MOVE_GAPS = Formula(
    """
before = half / sqrt(information * n + earlier)
after = half / sqrt(information * n + precision)
kick = before * (earlier * gaps - gap_slope) + after * (precision * gaps - gap_slope)
kicked = gap_drift - minimum(maximum(kick, -most), most)
gap_drift = damp * kicked + spread * z
gaps = gaps + after * (kicked + gap_drift)
""",
    rows=("n",),
    columns=("information", "earlier", "precision"),
)


@dataclass
class Thresholds(Sampled):
    """Coordinates of the thresholds, and their momenta, (R - 1,) float64 each."""

    quantities: ClassVar[Mapping[str, Quantity]] = {
        "position": Quantity("thresholds.position", ("threshold",), drawn=False, started=True),
        "momentum": Quantity("thresholds.momentum", ("threshold",), drawn=False),
        "values": Quantity(
            "thresholds", ("threshold",), kept=False, diagnosed="threshold_{number}"
        ),
    }

    position: Float64
    momentum: Float64

    @property
    def values(self) -> Float64:
        """The thresholds C, (R - 1,) float64, ascending."""
        return values_of(self.position)


class ThresholdModel:
    """Prior, initial values and updates of the thresholds, for the levels of the ratings.

    Parameters
    ----------
    counts : (R,) int
        Training ratings of each level, each at least 1.

    Attributes
    ----------
    information : float
        Average Fisher information of a rating on its predictor, at eta = 0.
    """

    def __init__(self, counts: Int64) -> None:
        from scipy.special import logit  # slow to import

        share = counts / counts.sum()
        cumulated = np.cumsum(share)[:-1]
        start = logit(cumulated)
        self.position = coordinates_of(start)
        size = len(start)
        fisher = self._fisher(start, share)
        self.information = float(fisher.sum())
        self.anchor = int(np.argmin(np.abs(cumulated - 0.5)))
        anchored = re_anchored(self.position, size // 2, self.anchor)
        self._log_gaps = np.delete(anchored, self.anchor)
        _, slope, _ = _bent(np.zeros(size - 1))
        slopes = np.insert(slope, self.anchor, 1.0)
        self.prior_precision = np.full(size, GAP_SD**-2)
        self.prior_precision[size // 2] = MIDDLE_SD**-2
        anchored_precision = np.insert(
            np.delete(self.prior_precision, size // 2), self.anchor, MIDDLE_SD**-2
        )
        jacobian = _jacobian(anchored, self.anchor) * slopes
        metric = counts.sum() * (jacobian.T @ fisher @ jacobian) + np.diag(
            anchored_precision * slopes**2
        )
        self._root = np.linalg.cholesky(metric)

    def start(self) -> Thresholds:
        """Thresholds that fit the levels' shares, with momenta 0."""
        return Thresholds(self.position.copy(), np.zeros(len(self.position)))

    def _fisher(self, distance: Float64, share: Float64) -> Float64:
        """Fisher information of a rating on the thresholds, (R - 1, R - 1).

        It depends on the distances of the thresholds from the predictor, (R - 1,), and on the
        probabilities of the levels, `share`, (R,).
        """
        from scipy.special import expit

        size, density = len(distance), expit(distance) * expit(-distance)
        slopes = np.zeros(
            (size + 1, size)
        )  # derivatives of the levels' probabilities with respect to the thresholds
        slopes[np.arange(size), np.arange(size)] = density
        slopes[np.arange(size) + 1, np.arange(size)] = -density
        return np.asarray(slopes.T @ (slopes / share[:, None]))

    def gap_information(self) -> Float64:
        """Largest Fisher information of a rating on the log gaps, (R - 2,), over predictors, at
        initial thresholds.
        """
        from scipy.special import expit

        start, jacobian = values_of(self.position), _jacobian(self.position)
        information = []
        for eta in np.linspace(start[0] - 2, start[-1] + 2, 60):
            share = np.maximum(np.diff(expit(start - eta), prepend=0.0, append=1.0), 1e-12)
            information.append(np.diag(jacobian.T @ self._fisher(start - eta, share) @ jacobian))
        return np.delete(np.max(information, axis=0), len(start) // 2)

    @staticmethod
    def slopes(position: Float64, sums: Float64) -> Float64:
        """Derivatives of the log likelihood with respect to the coordinates, (R - 1,).

        Parameters
        ----------
        position : (R - 1,) float64
        sums : (R, 2) float64
            Sums over all ratings, as `dsgmcmc.kernels.ordinal.ordinal_kernel` computes them, at a
            `scale` of 1.
        """
        upper, lower = sums[:, 0], -sums.sum(axis=1)
        return np.asarray(_jacobian(position).T @ (upper[:-1] + lower[1:]))

    def gradient(self, position: Float64, slopes: Float64) -> Float64:
        """Gradient of the energy with respect to the coordinates, given the `slopes` of the log
        likelihood.
        """
        return np.asarray(self.prior_precision * position - slopes)

    def move(
        self, state: Thresholds, slopes: Float64, rng: np.random.Generator
    ) -> dict[str, Float64]:
        """Make one step of BAOAB, given `slopes`; return the arrays of the new state by their names
        on disk.
        """
        middle, anchor = len(slopes) // 2, self.anchor
        anchored = re_anchored(state.position, middle, anchor)
        y, slope, change = _bent(np.delete(anchored, anchor) - self._log_gaps)
        gradient = self._anchored(state.position, self.gradient(state.position, slopes))
        gradient = np.insert(np.delete(gradient, anchor) * slope - change, anchor, gradient[anchor])
        kick = STEP * np.linalg.solve(self._root, gradient)
        kicked = state.momentum - np.clip(kick, -MOVE["most"], MOVE["most"])
        momentum = FRICTION * kicked + SPREAD * rng.standard_normal(len(kicked))
        moved = STEP / 2 * np.linalg.solve(self._root.T, kicked + momentum)
        log_gaps = self._log_gaps + np.log(np.logaddexp(0.0, y + np.delete(moved, anchor)))
        position = np.insert(log_gaps, anchor, anchored[anchor] + moved[anchor])
        return Thresholds(re_anchored(position, anchor, middle), momentum).arrays()

    def _anchored(self, position: Float64, gradient: Float64) -> Float64:
        """Convert the gradient at `position` from coordinates with the middle threshold to those
        with the anchor.
        """
        middle = len(position) // 2
        gap_gradient, gaps = np.delete(gradient, middle), np.exp(np.delete(position, middle))
        gap_gradient[self.anchor : middle] += gradient[middle] * gaps[self.anchor : middle]
        gap_gradient[middle : self.anchor] -= gradient[middle] * gaps[middle : self.anchor]
        return np.insert(gap_gradient, self.anchor, gradient[middle])


def re_anchored(position: Float64, index: int, to: int) -> Float64:
    """Coordinates, (R - 1,), with the threshold of index `to` in place of the threshold of index
    `index`.
    """
    return np.insert(np.delete(position, index), to, values_of(position, index)[to])


def values_of(position: Float64, middle: int | None = None) -> Float64:
    """Thresholds given coordinates, (..., R - 1); `middle` is the index of the threshold that is a
    coordinate.
    """
    middle = position.shape[-1] // 2 if middle is None else middle
    gaps = np.exp(position)
    centre = position[..., middle : middle + 1]
    below = centre - np.cumsum(gaps[..., :middle][..., ::-1], axis=-1)[..., ::-1]
    above = centre + np.cumsum(gaps[..., middle + 1 :], axis=-1)
    return np.concatenate([below, centre, above], axis=-1)


def coordinates_of(values: Float64) -> Float64:
    """Coordinates of thresholds; a gap below 1e-6 counts as 1e-6."""
    middle = len(values) // 2
    log_gaps = np.log(np.maximum(np.diff(values), 1e-6))
    return np.concatenate([log_gaps[:middle], values[middle : middle + 1], log_gaps[middle:]])


def _bent(log_ratio: Float64) -> tuple[Float64, Float64, Float64]:
    """Coordinates y of gaps that are exp(`log_ratio`) = log(1 + exp(y)) times the initial ones, (R
    - 2,) each.

    Returns y, the derivative s of `log_ratio` with respect to y, and that of log s.
    """
    from scipy.special import expit

    ratio = np.exp(log_ratio)
    y = ratio + np.log(-np.expm1(-ratio))
    slope = expit(y) / ratio
    return y, slope, expit(-y) - slope


def _jacobian(position: Float64, middle: int | None = None) -> Float64:
    """Derivatives of the thresholds (rows) with respect to the coordinates (columns), (R - 1, R -
    1).
    """
    size, middle = len(position), len(position) // 2 if middle is None else middle
    rows, columns = np.indices((size, size))
    jacobian = np.where((columns > middle) & (rows >= columns), 1.0, 0.0)
    jacobian -= (columns < middle) & (rows <= columns)
    jacobian *= np.exp(position)
    jacobian[:, middle] = 1.0
    return jacobian


class ThresholdSettings(BaseModel):
    """Settings of thresholds."""

    thresholds: ThresholdsName = setting(
        "Thresholds of ordinal likelihoods: one set, or one per user.", "shared"
    )


#: Quantities of rows with thresholds, if ratings have at least `LEAST_LEVELS` levels.
GAP_QUANTITIES = (
    Quantity(CUTS, ("threshold",), of_rows=True),
    Quantity(CUT_SLOPE, ("threshold",), of_rows=True, drawn=False),
    Quantity(GAPS, ("gap",), of_rows=True, drawn=False, started=True),
    Quantity(GAP_DRIFT, ("gap",), of_rows=True, drawn=False),
)


@dataclass
class GapPrecision(Sampled):
    """Precision lambda of the deviations d of log gaps, (R - 2,) float64; None if all rows share
    the thresholds.
    """

    quantities: ClassVar[Mapping[str, Quantity]] = {
        "precision": Quantity(
            "thresholds.precision",
            ("gap",),
            positive=True,
            started=True,
            diagnosed="gap_sd_{number}",
            as_sd=True,
        )
    }

    precision: Float64 | None


def cuts_of(position: Float64, gaps: Float64) -> Float64:
    """Thresholds (..., R - 1) of rows with deviations `gaps`, d, (..., R - 2), given the shared
    coordinates.
    """
    deviation, middle = MAX_DEVIATION * np.tanh(gaps / MAX_DEVIATION), len(position) // 2
    whole = [deviation[..., :middle], np.zeros((*gaps.shape[:-1], 1)), deviation[..., middle:]]
    return values_of(position + np.concatenate(whole, axis=-1))


def cut_table(block: ParameterBlock) -> Float32:
    """Thresholds of rows, with -`END` and `END`, (n, R + 1), for
    `dsgmcmc.kernels.ordinal.ordinal_kernel`.
    """
    cuts = block[CUTS]
    table = np.empty((len(cuts), cuts.shape[1] + 2), np.float32)
    table[:, 0], table[:, -1] = -END, END
    table[:, 1:-1] = cuts
    return table


def slopes_of(rows: Rows) -> Float64:
    """Derivatives of the log likelihood with respect to the rows' coordinates, (n, R - 1)."""
    cuts, slopes = (rows.joined(name, np.float64) for name in (CUTS, CUT_SLOPE))
    middle, widths = cuts.shape[1] // 2, np.diff(cuts, axis=1)
    by_coordinate = np.empty_like(slopes)
    by_coordinate[:, :middle] = -widths[:, :middle] * np.cumsum(slopes[:, :middle], axis=1)
    by_coordinate[:, middle] = slopes.sum(axis=1)
    by_coordinate[:, middle + 1 :] = (
        widths[:, middle:] * np.cumsum(slopes[:, :middle:-1], axis=1)[:, ::-1]
    )
    return by_coordinate


def move_gaps(rows: Rows, slopes: Float64, **columns: Float64) -> None:
    """Move d of all rows, given `slopes_of` the rows after the last sweep, and vectors that
    `MOVE_GAPS` names.
    """
    log_gap_slopes = np.delete(slopes, slopes.shape[1] // 2, axis=1)
    slope_of_f = 1 - np.square(np.tanh(rows.joined(GAPS, np.float64) / MAX_DEVIATION))
    for block, of_block in rows.by_block((log_gap_slopes * slope_of_f).astype(rows.dtype)):
        block.arrays.setdefault(GAP_SLOPE, np.empty_like(of_block))[:] = of_block
    given = {name: column.astype(rows.dtype) for name, column in columns.items()}
    rows.update(
        MOVE_GAPS, Purpose.GAP, slopes.shape[1] - 1, n=rows.n_data, half=STEP / 2, **given, **MOVE
    )


# ---------------------------------------------------------------------- the likelihood


def scale_of(ratings: Ratings) -> Float64 | None:
    """Distinct training ratings, ascending, if they look like the levels of a scale; None if they
    are measurements.

    Ratings count as measurements if they have more than `MAX_LEVELS` distinct values, or if a value
    occurs less than twice on average and some values are neither whole nor half numbers.
    """
    values = ratings.levels(MAX_LEVELS)
    return (
        values
        if values is not None and (2 * len(values) <= ratings.nnz or np.all(2 * values % 1 == 0))
        else None
    )


class Ordinal(ScaledRows):
    """Ratings of ordered levels."""

    has_noise = False
    replaces_mean = True
    Settings = ThresholdSettings
    width = LINK_WIDTH
    swept_fields = ("slope", CUT_SLOPE)
    defaults: ClassVar[dict[str, Any]] = {"noise_precision": 1.0}

    def _set_up(self, levels: Levels | None) -> None:
        """Make the model of the thresholds; compute the information of a rating that replaces tau
        in the metric.
        """
        assert levels is not None
        self.values, self.n_levels = levels.values, len(levels.values)
        self.model = ThresholdModel(levels.counts)
        if self.cut_by is not None:
            self._gap_information = self.model.gap_information()
        else:
            self.sums_name, self.sums_shape = "level_sums", (self.n_levels, 2)
        self._weight = max(self.model.information, 0.6 * (0.25 if self.n_levels == 2 else 0.5))

    @classmethod
    def quantities_with(
        cls, factors: tuple[Factor, ...], cut_by: Factor | None = None
    ) -> tuple[Quantity, ...]:
        """The quantities of a chain, given the factors whose rows have noise scales and, as
        `cut_by`, thresholds.
        """
        cuts = () if cut_by is None else tuple(quantity.of(cut_by) for quantity in GAP_QUANTITIES)
        gaps = GapPrecision.about(()) if cuts else ()
        shared = (*Thresholds.about(()), *ScalePrecision.about(factors), *gaps)
        return (*super().quantities_with(factors), *cuts, *shared)

    def momenta_of(self, factor: Factor) -> dict[str, str]:
        """Fields of a factor's rows that contain N(0, 1) momenta, by the name of the parameters
        that they move.
        """
        return super().momenta_of(factor) | ({"gaps": GAP_DRIFT} if factor == self.cut_by else {})

    @property
    def intercept(self) -> Intercept:
        """Intercept, or None; moving it and all biases of a factor by the same amount changes no
        probability.

        Here: the middle threshold, with which all other thresholds move.
        """
        middle = len(self.thresholds.position) // 2
        return Intercept(
            float(self.thresholds.position[middle]), float(self.model.prior_precision[middle])
        )

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

        Here: the levels, and the number of training ratings at each level: at least 1, because a
        comparison may hold out all ratings of a rare level.
        """
        values = cls.levels_of(ratings)
        assert values is not None
        return Levels(values, np.maximum(blocks.level_counts(ring, len(values)), 1))

    # ------------------------------------------------------------------ settings and ratings files

    @classmethod
    def levels_of(cls, ratings: Ratings) -> Float64 | None:
        """Levels of the training ratings, (R,) float64, if this likelihood has thresholds between
        levels; else None.
        """
        return ratings.levels(MAX_THRESHOLDS)

    @classmethod
    def check_ratings(cls, config: Any, ratings: Ratings) -> None:
        """Refuse ratings of one level or of too many levels, and of two levels if users are to have
        thresholds.
        """
        levels, likelihood = cls.levels_of(ratings), config.likelihood
        if levels is None:
            raise InputError(
                f"{ratings.path} has more than {MAX_THRESHOLDS} different training ratings, too"
                f" many levels for {likelihood}: use {named('likelihood')} gaussian, or round the"
                " ratings and prepare them again"
            )
        if len(levels) < 2:
            raise InputError(
                f"{ratings.path}: all training ratings are {levels[0]:g}; {likelihood} needs two"
                " levels"
            )
        if config.thresholds != "shared" and len(levels) < LEAST_LEVELS:
            raise InputError(
                f"{ratings.path} has only the ratings {levels[0]:g} and {levels[1]:g}, and a user's"
                " bias already moves the one threshold between them: leave out"
                f" {named('thresholds')}"
            )

    @classmethod
    def codes(cls, values: Array, levels: Float64 | None) -> Array:
        """Ratings as this likelihood encodes them: the index of the nearest level, 1 for clicks,
        else the value.
        """
        assert levels is not None
        return nearest_level(values, levels).astype(values.dtype)

    # ------------------------------------------------------------------ training ratings

    def start(self, blocks: Iterable[ParameterBlock]) -> None:
        """Set the part's fields in blocks and its shared parameters to their initial values.

        Here: all scales become 1, all rows get the same thresholds, and momenta become 0.
        """
        self.thresholds = self.model.start()
        has_gaps = self.cut_by is not None
        self.gaps = GapPrecision(np.full(len(self.values) - 2, GAP_START) if has_gaps else None)
        super().start(blocks)

    def refresh_derived_fields(self, rows: Rows) -> None:
        """Recompute derived fields of rows, after other fields or `replicated` have changed.

        Here: compute the thresholds of rows from their gaps.
        """
        if rows.factor == self.cut_by:
            for block, cuts in rows.by_block(
                cuts_of(self.thresholds.position, rows.joined(GAPS, np.float64))
            ):
                block[CUTS][:] = cuts

    def add_gradient(
        self, cell: RatingsCell, position: str, out: str, scale: float, share: float
    ) -> float:
        """Add the gradient of a cell's energy, times `scale`, to `out` of both blocks."""
        blocks, cut_by = (cell.row, cell.column), self.cut_by
        scaled = self.heteroscedastic or cut_by is not None
        kernel = ordinal_kernel(
            self.rank,
            self.biases,
            scaled=scaled,
            cut_by=cut_by,
            offset=cell.ratings.offsets is not None,
        )
        if cut_by is None:
            tables, sums = (
                level_tables(scaled, self.thresholds.values),
                np.zeros((len(self.values), 2)),
            )
        else:
            tables = cut_table(blocks[cut_by])
            sums = np.zeros(tables.shape)
        scales = [self.row_scale(block) for block in blocks if scaled]
        slopes = [np.zeros(len(block.counts), np.float32) for block in blocks if scaled]
        kernel(*cell.arguments(position, out), tables, sums, *scales, *slopes, scale)
        if share and cut_by is not None:
            blocks[cut_by][CUT_SLOPE][:] += np.float32(share / scale) * sums[:, 1:-1].astype(
                np.float32
            )
        elif share:
            self.sums_of(cell.row.index)[:] += share / scale * sums
        if share and self.heteroscedastic:
            self.keep_slopes(blocks, slopes, share / scale)
        return 0.0

    def scores(self, cell: RatingsCell) -> tuple[Score, Float32]:
        """Score at noise precision 1, and its arguments.

        Here: the thresholds on either side of a rating, and the rating's scale if there are scales.
        """
        ratings, cut_by = cell.ratings, self.cut_by
        blocks = (cell.row, cell.column)
        level, places = ratings.values.astype(np.intp), (ratings.rows, ratings.indices)
        table = np.concatenate([[-END], self.thresholds.values, [END]]).astype(np.float32)[None]
        owner: Any = 0
        if cut_by is not None:
            table, owner = cut_table(blocks[cut_by]), places[cut_by]
        terms = [table[owner, level + 1], table[owner, level]]
        if self.heteroscedastic:
            row_scale, column_scale = (
                self.row_scale(block)[at] for block, at in zip(blocks, places, strict=True)
            )
            terms.append(row_scale * column_scale)
        return level_score(self.heteroscedastic), np.stack(terms)

    def draw(self, context: DrawContext) -> None:
        """Draw the parameters that `draw_shared` does not draw, if they are due
        (`DrawContext.is_turn`). Collective.

        Here: move the thresholds and draw the precisions of scales and gaps; then move the scales
        and gaps.

        Thresholds, scales and gaps move once a sweep, from the gradient at one state. Their
        precisions are drawn when the other hyperparameters are, not earlier: at the start all
        scales and gaps are equal, and a precision drawn from equal values would keep them equal for
        hundreds of sweeps.
        """
        circulation, cut_by, earlier = context.circulation, self.cut_by, self.gaps.precision
        sums = self.square_sums(circulation)
        if cut_by is None:
            sums["slopes"] = self.block_sums(circulation)
        else:
            rows = next(rows for rows in circulation.rows_by_factor() if rows.factor == cut_by)
            slopes = slopes_of(rows)
            sums["slopes"] = np.array(
                [of_block.sum(axis=0) for _, of_block in rows.by_block(slopes)]
            )
            sums[GAPS] = np.array(
                [np.square(block[GAPS], dtype=np.float64).sum(axis=0) for block in rows.blocks]
            )
        shapes = shapes_of(arrays_of(self.replicated))
        finish = partial(self._finish, context.stream, circulation.ratings.shape, context.is_turn())
        take_all(self.replicated, circulation.ring.sum(sums, finish, shapes))
        self.move_scales(circulation, SCALE_INFORMATION)
        if cut_by is not None:
            assert earlier is not None
            assert self.gaps.precision is not None
            move_gaps(
                rows,
                slopes,
                information=self._gap_information,
                earlier=earlier,
                precision=self.gaps.precision,
            )
            self.refresh_derived_fields(rows)

    def _finish(
        self, stream: RandomStream, rows: tuple[int, int], is_turn: bool, sums: dict[str, Float64]
    ) -> dict[str, Float64]:
        """Move the thresholds and, if due, draw the precisions, from the sums over all blocks; runs
        at the root.

        `rows` are the numbers of rows of both factors.
        """
        rng, cut_by = stream.generator(Purpose.THRESHOLDS), self.cut_by
        slopes = sums["slopes"]
        if cut_by is None:
            slopes = self.model.slopes(self.thresholds.position, slopes)
        drawn = (
            self.scales.arrays()
            | self.gaps.arrays()
            | self.model.move(self.thresholds, slopes, rng)
        )
        if not is_turn:
            return drawn
        for factor in sorted(self.factors):
            name = f"{factor.name}.scales"
            drawn[name] = SCALE_PRIOR.draw(sums[name], rows[factor], rng)
        if cut_by is not None:
            drawn["thresholds.precision"] = GAP_PRIOR.draw(sums[GAPS], rows[cut_by], rng)
        return drawn

    def noise_scale(self, block: ParameterBlock) -> Float32:
        """Noise scales g of a block's rows, (n,) float32; 1 if all rows have the same noise.

        Here: s^2 times the square root of the information that replaces tau in the metric, so that
        the product of both rows' values contains this information once.
        """
        return np.float32(np.sqrt(self._weight)) * self.row_scale(block) ** 2

    def counts(self, circulation: Circulation) -> tuple[Counts, Counts]:
        """For every row, the sums of its ratings' weights in the information, and of their squares.

        Collective.

        Here: a rating's weight is s_i^2 s_j^2 times the information that replaces tau in the
        metric.
        """
        both = (
            self.weighted_counts(circulation, 2)
            if self.heteroscedastic
            else super().counts(circulation)
        )
        return with_weight(both, np.float32(self._weight))

    @classmethod
    def log_likelihood_at(
        cls, x: Float64, eta: Float64, scale: Float64, thresholds: Array | None
    ) -> Float64:
        """Log density of ratings given their predictors, (n,) float64; for likelihoods that are not
        Gaussian.

        With a and b the ends of the level, from the predictor, F(b) - F(a) is 1 - exp(a - b) over
        the product of 1 + exp(a) and 1 + exp(-b), which loses no digits in either tail.
        """
        assert thresholds is not None
        level, last = x.astype(np.int64), thresholds.shape[-1]
        own = level if thresholds.ndim == 1 else level + last * np.arange(len(x))
        lower = np.where(level == 0, -np.inf, thresholds.take(own - (level > 0)))
        upper = np.where(level == last, np.inf, thresholds.take(own - (level == last)))
        below, above = (np.exp(np.minimum(scale * d, 690.0)) for d in (lower - eta, eta - upper))
        both = below * above
        return np.asarray(np.log(np.maximum((1 - both) / (1 + below + above + both), 1e-300)))

    # ------------------------------------------------------------------ new ratings

    def state(
        self, eta: Float32, cell: RatingsCell, rows: Int32, columns: Int32, tau: float
    ) -> State:
        """Distributions of q ratings at one state, given their predictors and their rows and
        columns in the cell.
        """
        scale = self.row_scale(cell.row)[rows] * self.row_scale(cell.column)[columns]
        if self.cut_by is None:
            probability = level_probabilities(eta, scale, self.thresholds.values)
        else:
            block, owner = ((cell.row, rows), (cell.column, columns))[self.cut_by]
            probability = level_probabilities(eta, scale, block[CUTS], owner)
        return State(*level_moments(probability, self.values), probability)

    def log_likelihood(self, x: Float32, state: State) -> float:
        """Sum of the log densities of ratings, given their distributions; all may share one
        variance, (1,).

        A rating that is not a level counts as the nearest level.
        """
        return float(log_probability(state.probability, nearest_level(x, self.values)).sum())

    @classmethod
    def _by_draw(cls, draws: PredictorDraws) -> Iterator[Float32]:
        """Yield the probabilities of the levels at every draw, (q, R) each."""
        assert draws.thresholds is not None
        for d, cuts in enumerate(draws.thresholds):
            yield level_probabilities(
                draws.eta[:, d], np.reciprocal(draws.noise[:, d]), cuts, draws.owner
            )

    @classmethod
    def predictive(
        cls, draws: PredictorDraws, centre: float = 0.0, levels: Float64 | None = None
    ) -> Predictive:
        """Posterior predictive distributions of ratings: mixtures over draws of their predictors."""
        assert levels is not None
        probability = np.zeros((len(draws.eta), len(levels)), np.float32)
        for share, node in draws.over_effects():
            for weight, p in zip((share * node.weights).tolist(), cls._by_draw(node), strict=True):
                probability += np.float32(weight) * p
        return LevelDistribution(probability, levels)

    @classmethod
    def expectation(
        cls, draws: PredictorDraws, centre: float = 0.0, levels: Float64 | None = None
    ) -> Predictive:
        """Posterior distributions of the expected ratings, without noise; parameters as for
        `predictive`.
        """
        assert levels is not None
        nodes, draws = draws.over_effects(), draws.known()
        means = np.zeros_like(draws.eta)
        for share, node in nodes:
            at_draws = [level_moments(p, levels)[0] for p in cls._by_draw(node)]
            means += np.float32(share) * np.stack(at_draws, axis=1)
        return Scores(means, draws.spread, draws.weights)

    @classmethod
    def predictive_of_moments(cls, moments: Moments) -> Predictive:
        """Posterior predictive distributions, approximated from moments over draws."""
        assert moments.probability is not None
        assert moments.levels is not None
        return LevelDistribution(moments.probability, moments.levels)
