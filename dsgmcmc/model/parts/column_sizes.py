"""Joint move of the columns of a factor and of their half-Cauchy priors.

With X_k = W_ik H_jk at every rating, all W_ik, their mean m_k and their standard deviation s_k are
multiplied by c_k. The prior density of the rows and of m_k, times the Jacobian, is unchanged, so
that the c are coefficients of a regression on the X_k (docs/model.md has the derivation):

    u_k ~ Exp(A^2 + s_k^2)
    c   ~ N(Q^-1 X^T Omega y, Q^-1),    Q = X^T Omega X + diag(2 u_k s_k^2)

where y are the ratings less their biases, Omega = diag(tau g_i g'_j), and A is the common scale of
the s_k. Then the columns of H are multiplied likewise. A momentum takes the sign of its column's c.

The move is exact for normal ratings whose rows have no shift of their prior mean.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.random import Generator

from dsgmcmc.kernels.products import inner
from dsgmcmc.model.circulation import RatingsCell
from dsgmcmc.model.conjugate import Scales
from dsgmcmc.model.parts.base import DrawContext
from dsgmcmc.types import Factor, Float64, Purpose

#: Ratings whose products are in memory at a time.
SLAB = 1024
#: Share of its diagonal that is added to X^T Omega X: with fewer ratings than columns, its sums in
#: float32 need not be positive definite.
ROUNDING = 1e-6


def move_column_sizes(
    context: DrawContext,
    mean: Mapping[Factor, Float64],
    precision: Mapping[Factor, Float64],
    *,
    rank: int,
    scales: Scales,
) -> None:
    """Multiply columns of both factors, their means and standard deviations. Collective.

    Parameters
    ----------
    context : DrawContext
    mean, precision : dict of Factor to (D,) float64
        Means and precisions of the rows' priors, which are changed.
    rank : int
        K.
    scales : Scales
        Values of the common scale A.
    """
    circulation = context.circulation

    def finish(total: dict[str, Float64]) -> dict[str, Float64]:
        """Draw the multipliers at the root, by factor."""
        products = context.tau() * total["products"]
        gram = products[:rank, :rank]
        moment = products[:rank, rank]
        rng = context.stream.generator(Purpose.HYPERPARAMETERS, part=4)
        drawn = {}
        for factor in Factor:
            sds = precision[factor][:rank] ** -0.5
            scale = scales.draw(sds**-2, rng)
            c = draw_multipliers(gram, moment, sds=sds, scale=scale, rng=rng)
            gram = gram * np.outer(c, c)
            moment = moment * c
            drawn[factor.name] = c
        return drawn

    sums = {"products": sums_of_products(context)}
    drawn = circulation.ring.sum(sums, finish, {factor.name: (rank,) for factor in Factor})
    for factor in Factor:
        c = drawn[factor.name]
        mean[factor][:rank] *= c
        precision[factor][:rank] /= c**2
    for block in circulation.blocks():
        c = drawn[block.factor.name].astype(block.dtype)
        block[context.position][:, :rank] *= c
        if context.momentum:
            block[context.momentum][:, :rank] *= np.sign(c)


def draw_multipliers(
    gram: Float64, moment: Float64, *, sds: Float64, scale: float, rng: Generator
) -> Float64:
    """Draw c, (K,), given X^T Omega X, X^T Omega y, the sds s, (K,), and their common scale A."""
    mixing = rng.standard_exponential(len(sds)) / (scale**2 + sds**2)
    added = 2 * mixing * sds**2 + ROUNDING * np.diag(gram)
    root = np.linalg.cholesky(gram + np.diag(added))
    centre = np.linalg.solve(root, moment)
    drawn = np.linalg.solve(root.T, centre + rng.standard_normal(len(sds)))
    return np.asarray(drawn, np.float64)


def sums_of_products(context: DrawContext) -> Float64:
    """Sums over the ratings of each row block of g_i g'_j v v^T, with v = (X, y). Collective.

    (blocks, K + 1, K + 1), from which X^T Omega X and X^T Omega y follow.
    """
    size = context.law.rank + 1
    totals = {b: np.zeros((size, size)) for b in context.circulation.ring.blocks}
    for cell in context.circulation.tour((context.position, *context.law.drawn)):
        totals[cell.row.index] += _sums_of_cell(cell, context)
    return np.array([*totals.values()])


def _sums_of_cell(cell: RatingsCell, context: DrawContext) -> Float64:
    """`sums_of_products` of one cell."""
    law = context.law
    k = law.rank
    ratings = cell.ratings
    values = ratings.values
    rows = ratings.rows
    w = cell.row[context.position]
    h = cell.column[context.position]
    if law.heteroscedastic:
        row_root = np.sqrt(law.noise_scale(cell.row))
        column_root = np.sqrt(law.noise_scale(cell.column))
    total = np.zeros((k + 1, k + 1))
    for start in range(0, len(values), SLAB):
        slab = slice(start, start + SLAB)
        i = rows[slab]
        j = ratings.indices[slab]
        # of whole rows: NumPy multiplies parts of rows in five times the time
        v = w.take(i, axis=0)
        of_columns = h.take(j, axis=0)
        y = values[slab]
        if law.biases:
            y = y - v[:, k] - of_columns[:, k]
            v *= of_columns
            v[:, k] = y
        else:
            v *= of_columns
            v = np.column_stack([v, y])
        if law.heteroscedastic:
            v *= (row_root[i] * column_root[j])[:, None]
        if ratings.weights is not None:
            v *= np.sqrt(ratings.weights[slab])[:, None]
        total += inner(v, v)
    return total
