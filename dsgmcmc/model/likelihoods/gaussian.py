r"""Gaussian ratings: x_ij ~ N(eta_ij, 1 / (tau g_i g'_j)); without noise scales all g are 1.

The score is tau (x - eta). The model is conjugate: given one factor, the other factor's rows are
Gaussian. The ratings of row i add tau sum_j phi_j phi_j^T to its precision, with phi_j = (H_j, 1),
and tau sum_j (x_ij - b_j) phi_j to the product of precision and mean.

If ratings have weights w, their precisions are tau g_i g'_j w_ij.

The noise scales g, of users, of items or of both, are field ``weight`` of a block, of width 1.
Field ``row_error`` sums, over a sweep, every row's squared errors, each times the other factor's
scale.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import numpy as np
from typing_extensions import override

from dsgmcmc.kernels.gradient import gradient_kernel
from dsgmcmc.model.circulation import RatingsCell
from dsgmcmc.model.likelihoods.base import State
from dsgmcmc.model.likelihoods.likelihood import Likelihood
from dsgmcmc.model.likelihoods.ordinal.logit_weights import NormalRatings
from dsgmcmc.model.predictive.base import Predictive, PredictorDraws
from dsgmcmc.model.predictive.mixture import ExpectationMixture, Normal, NormalMixture
from dsgmcmc.model.quantity import WEIGHT, Quantity
from dsgmcmc.model.truncation import left_tail
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.settings import named
from dsgmcmc.targets.state import ParameterBlock
from dsgmcmc.types import Array, Factor, Float32, Float64

ROW_ERROR = Quantity("row_error", of_rows=True, drawn=False)


class GaussianRatings(Normal, Likelihood):
    """Gaussian ratings, with one noise level for all, or noise scales of users, items, or both."""

    score = "x - eta"
    is_linear = True
    takes_weights = True
    takes_bounds = True
    mixture = NormalMixture
    noise_quantities: ClassVar[tuple[Quantity, ...]] = (WEIGHT, ROW_ERROR)
    swept_fields = ("row_error",)

    @classmethod
    @override
    def warnings_for_data(cls, ratings: Ratings, likelihood: str) -> Iterator[str]:
        """Yield warnings if this likelihood may not suit the values in a ratings file.

        Here: also if there are two exact values.
        """
        yield from super().warnings_for_data(ratings, likelihood)
        values = ratings.levels(2)
        if values is None or len(values) < 2 or ratings.has_bounds:
            return
        advice = f"try {named('likelihood')} ordinal-logit"
        if ratings.mean_weight is not None:
            advice = (
                f"for {named('likelihood')} ordinal-logit, which does not take their weights,"
                f" prepare them without weight= in {named('columns')}"
            )
        yield (
            f"{named('likelihood')} {likelihood} has wrong intervals for ratings"
            f" {values[0]:g} and {values[1]:g}: {advice}"
        )

    # ------------------------------------------------------------------ training ratings

    @override
    def add_gradient(
        self, cell: RatingsCell, position: str, out: str, *, scale: float, share: float
    ) -> float:
        """Add the gradient of a cell's energy, times `scale`, to `out` of both blocks.

        The squared error of a rating is multiplied by g_i g'_j.
        """
        if not self.heteroscedastic:
            return super().add_gradient(cell, position, out, scale=scale, share=share)
        row_errors = np.zeros(len(cell.row.counts))
        column_errors = np.zeros(len(cell.column.counts))
        kernel = gradient_kernel(
            self.rank,
            self.biases,
            weighted=True,
            score=self.score,
            by_rating=cell.ratings.weights is not None,
        )
        total = kernel(
            *cell.arguments(position, out),
            cell.row.row("weight"),
            cell.column.row("weight"),
            row_errors,
            column_errors,
            np.float32(scale),
        )
        if share:
            cell.row["row_error"][:, 0] += share * row_errors
            cell.column["row_error"][:, 0] += share * column_errors
        return float(total)

    @override
    def normal_ratings(self, cell: RatingsCell, factor: Factor) -> NormalRatings | None:
        """Ratings of a cell as normal variables, given their weights.

        Here: None without weights. The scales of the rows of `factor` are no part of the precision:
        `conditional_scale` has them.
        """
        ratings = cell.ratings
        if ratings.weights is None:
            return None
        if factor == Factor.W:
            scale = self.noise_scale(cell.column)[ratings.indices]
            return NormalRatings(
                replace(ratings, weights=None), root=np.sqrt(ratings.weights * scale)
            )
        order = ratings.column_order
        scale = self.noise_scale(cell.row)[ratings.rows]
        return NormalRatings(ratings.by_column, root=np.sqrt(ratings.weights * scale)[order])

    @override
    def keep_errors(self, block: ParameterBlock, errors: Float64) -> None:
        if self.heteroscedastic:
            block["row_error"][:, 0] = errors

    @staticmethod
    @override
    def statistics(covariates: Float64, x: Float64, precision: Float64) -> tuple[Float64, Float64]:
        gram = (covariates.T * precision) @ covariates
        moment = covariates.T @ (precision * x)
        return gram, moment

    # ------------------------------------------------------------------ new ratings

    @staticmethod
    @override
    def variance(eta: Array, noise: Array | float, *shape: Array | float) -> Array | float:
        return noise

    @staticmethod
    @override
    def quantile_between(
        p: Float64,
        mean: Float64,
        variance: Float64,
        bounds: tuple[Float64, Float64],
        *shape: Array | float,
    ) -> Float64:
        from scipy.special import log_ndtr, ndtri_exp  # slow to import

        sd = np.sqrt(variance)
        sign, left, right = left_tail((bounds[0] - mean) / sd, (bounds[1] - mean) / sd)
        log_right = log_ndtr(right)
        share = -np.expm1(log_ndtr(left) - log_right)
        above = np.where(sign > 0, 1 - p, p)
        z = ndtri_exp(log_right + np.log1p(-above * share))
        return np.asarray(mean + sd * sign * np.clip(z, left, right))

    @override
    def log_likelihood(self, x: Float32, state: State) -> float:
        variance = np.atleast_1d(state.variance)
        squares = np.square(state.mean - x)
        squares /= variance
        logs = np.log(2 * np.pi * variance).sum(dtype=np.float64)
        if len(variance) != len(x):  # one variance for all: its logarithm is computed once
            logs = logs * len(x)
        return -0.5 * float(logs + squares.sum(dtype=np.float64))

    @classmethod
    @override
    def predictive(
        cls, draws: PredictorDraws, centre: float = 0.0, levels: Float64 | None = None
    ) -> Predictive:
        """Posterior predictive distributions of ratings: mixtures over draws of their predictors.

        The variance of a predictor's unknown terms is added to the noise variance.
        """
        noise = draws.noise
        if draws.effects is not None:
            noise = noise + draws.effects
        return cls.mixture(cls, draws.eta, noise + draws.spread, draws.weights, centre, levels)

    @classmethod
    @override
    def expectation(
        cls, draws: PredictorDraws, centre: float = 0.0, levels: Float64 | None = None
    ) -> Predictive:
        return ExpectationMixture(draws.eta, draws.spread, draws.weights, centre)
