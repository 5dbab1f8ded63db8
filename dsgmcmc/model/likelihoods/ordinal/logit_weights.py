r"""Weights of ratings of two levels, given which rows are normal [Polson, Scott & Windle 2013].

With y = 0 or 1 the level of a rating, z = eta - C and kappa = y - 1/2, the logistic likelihood is

    F(z)^y F(-z)^(1 - y)  =  exp(kappa z) E[exp(-w z^2 / 2)] / 2,      w ~ PG(1, 0)

Once a sweep, every rating's weight is drawn from its conditional distribution, w ~ PG(1, z). Given
w, the rating is a normal variable kappa / w + C with mean eta and precision w. The threshold is
then normal, too: with its prior N(0, 1 / lambda),

    C | eta, w ~ N(sum (w eta - kappa) / P, 1 / P),      P = lambda + sum w

[Polson, Scott & Windle 2013] Bayesian inference for logistic models using Polya-Gamma latent
variables. JASA 108.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from dsgmcmc.kernels.effects import predictor_kernel
from dsgmcmc.kernels.polya_gamma import draw_weights
from dsgmcmc.model.blocks import CellRatings
from dsgmcmc.model.circulation import RatingsCell
from dsgmcmc.model.parts.base import DrawContext
from dsgmcmc.types import Factor, Float32, Float64, Purpose


class NormalRatings(NamedTuple):
    """Ratings of a cell as normal variables with precisions of their own.

    Attributes
    ----------
    ratings : CellRatings
        The ratings, less the offsets of their predictors.
    root : (nnz,) float32
        Square roots of their precisions.
    """

    ratings: CellRatings
    root: Float32


def predictors(cell: RatingsCell, context: DrawContext) -> Float32:
    """Predictors of the ratings of a cell, (nnz,)."""
    ratings = cell.ratings
    law = context.law
    offsets = ratings.offsets
    if offsets is None:
        offsets = np.zeros(len(ratings.indices), np.float32)
    eta = np.empty_like(offsets)
    predict = predictor_kernel(law.rank, law.biases, "+")
    rows = cell.row[context.position]
    columns = cell.column[context.position]
    predict(*ratings.pattern, offsets, rows, columns, eta)
    return eta


class LogitWeights:
    """The weights of the ratings in this process's rows, by cell."""

    def __init__(self) -> None:
        self._weights: dict[tuple[int, int], Float32] = {}

    def draw(self, context: DrawContext, threshold: float) -> Float64:
        """Draw all weights; return sums for the draw of the threshold. Collective.

        Returns
        -------
        (row blocks of this process, 2) float64
            Sums of w, and of w eta - kappa, over the ratings of a row block.
        """
        sums = {b: np.zeros(2) for b in context.circulation.rows}
        for cell in context.circulation.tour((context.position, *context.law.drawn)):
            sums[cell.row.index] += self._draw_cell(cell, context, threshold)
        return np.array(list(sums.values()))

    def _draw_cell(self, cell: RatingsCell, context: DrawContext, threshold: float) -> Float64:
        """Draw the weights of a cell; return the sums of w and of w eta - kappa, (2,)."""
        ratings = cell.ratings
        eta = predictors(cell, context)
        weights = draw_weights(
            ratings.pattern,
            eta - np.float32(threshold),
            first_column=cell.column.start,
            key=context.stream.key(Purpose.RATING_WEIGHT, Factor.W, cell.row.start),
        )
        self._weights[cell.row.index, cell.column.index] = weights
        kappa = _centred(ratings.values)
        pull = weights * eta - kappa
        return np.array([weights.sum(dtype=np.float64), pull.sum(dtype=np.float64)])

    def normal_ratings(self, cell: RatingsCell, factor: Factor, threshold: float) -> NormalRatings:
        """Ratings of a cell as normal variables; the rows of `factor` are the rows of the cell."""
        ratings = cell.ratings
        weights = self._weights[cell.row.index, cell.column.index]
        values = _centred(ratings.values) / weights + np.float32(threshold)
        if ratings.offsets is not None:
            values -= ratings.offsets
        root = np.sqrt(weights)
        if factor == Factor.W:
            normal = replace(ratings, stored=values, table=None, offsets=None)
            return NormalRatings(normal, root)
        order = ratings.column_order
        return NormalRatings(ratings.by_column.with_values(values[order]), root[order])


def _centred(levels: Float32) -> Float32:
    """Values of kappa for ratings that are the indices of levels."""
    return levels - np.float32(0.5)


def draw_threshold(precision: float, sums: Float64, rng: Generator) -> float:
    """Draw C given the `precision` lambda of its prior and the total of `LogitWeights.draw`."""
    weight, pull = sums.tolist()
    total = precision + weight
    return float(pull / total + rng.standard_normal() / np.sqrt(total))
