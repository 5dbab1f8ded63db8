"""Exchange of the means of one factor's rows and the biases of the other factor's rows.

The predictor a_i + b_j + W_i . H_j does not change if all H_j move by d and every bias a_i by
-W_i . d, nor does the prior density of H if its mean m moves by d, too. With r_i the
bias less its prior mean, lambda_a its prior precision, and m ~ N(0, (kappa Lambda)^-1),

    d ~ N(Q^-1 (lambda_a sum_i r_i W_i - kappa Lambda m), Q^-1)
    Q = kappa Lambda + lambda_a sum_i W_i W_i^T

and likewise for W and the biases b_j. If the prior's precision has a scale g_i for every row, the
terms of the sums are multiplied by g_i. The translations by d form a group with Jacobian 1, so that
the move leaves the posterior invariant [Liu & Sabatti 2000, theorem 1].

[Liu & Sabatti 2000] Generalised Gibbs sampler and multigrid Monte Carlo for Bayesian computation.
Biometrika 87.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from dsgmcmc.kernels.formulas.formula import dense
from dsgmcmc.kernels.products import inner
from dsgmcmc.model import conjugate
from dsgmcmc.model.circulation import OTHER
from dsgmcmc.model.parts.base import DrawContext, Intercept
from dsgmcmc.model.quantity import SHIFT, WEIGHT
from dsgmcmc.targets.state import Rows
from dsgmcmc.types import Factor, Float64, Purpose


class Translation(NamedTuple):
    """Steps that change no predictor.

    Attributes
    ----------
    rows : dict of Factor to (K,) float64
        Step of all rows of a factor, and of their mean.
    biases : dict of Factor to float
        Step of all biases of a factor, in addition to the exchange with the other factor's rows.
        The intercept moves by the sum of both factors' steps.
    """

    rows: dict[Factor, Float64]
    biases: dict[Factor, float]


def exchange_means_and_biases(
    context: DrawContext,
    mean: Mapping[Factor, Float64],
    precision: Mapping[Factor, Float64],
    *,
    kappa: float,
    bias_mean: float,
) -> None:
    """Exchange means and biases: change all rows, their means and the intercept. Collective.

    A chain that draws each given the other exchanges them only over thousands of sweeps.

    Parameters
    ----------
    context : DrawContext
    mean, precision : dict of Factor to (D,), and to (D,) or (D, D) float64
        Means, which are changed, and precisions of the rows' priors; the last column is for the
        bias.
    kappa : float
        Precision of a mean in units of Lambda.
    bias_mean : float
        Prior mean of the biases.
    """
    circulation = context.circulation
    law = context.law
    k = len(mean[Factor.W]) - 1

    def finish(total: dict[str, Float64]) -> dict[str, Float64]:
        """Draw the steps at the root: by factor, those of the rows, then that of the biases."""
        steps = draw_translation(
            mean,
            precision,
            {factor: total[factor.name] for factor in Factor},
            sizes={factor: float(total[size_name(factor)][0]) for factor in Factor},
            kappa=kappa,
            rng=context.stream.generator(Purpose.HYPERPARAMETERS, part=3),
            intercept=law.intercept,
        )
        return {f.name: np.append(steps.rows[f], steps.biases[f]) for f in Factor}

    partials = {}
    for rows in circulation.rows_by_factor():
        scaled = context.prior(rows.blocks[0]).scale is not None
        partials[rows.factor.name] = exchange_sums(rows, context.position, bias_mean, scaled)
        partials[size_name(rows.factor)] = conjugate.sums_of_scales(rows, scaled)
    moved = circulation.ring.sum(partials, finish, {factor.name: (k + 1,) for factor in Factor})
    for rows in circulation.rows_by_factor():
        _move_rows(rows, context.position, moved)
    for factor in Factor:
        mean[factor][:k] += moved[factor.name][:k]
    if law.intercept is not None:
        step = sum(float(moved[factor.name][k]) for factor in Factor)
        law.move_intercept(circulation.blocks(), step)


def _move_rows(rows: Rows, position: str, moved: Mapping[str, Float64]) -> None:
    """Move the rows of a factor and their biases, given the steps of both factors by name."""
    k = rows.dimension - 1
    own = moved[rows.factor.name]
    other = moved[OTHER[rows.factor].name]
    theta = rows.joined(position, rows.dtype)
    vectors = theta[:, :k]
    bias = theta[:, k]
    vectors += own[:k].astype(rows.dtype)
    bias -= np.einsum("ij,j->i", vectors, other[:k].astype(rows.dtype)) - own[k]
    if rows.factor == Factor.W:
        # the biases of both factors have lost the product of both steps; it counts once
        bias += float(own[:k] @ other[:k])
    rows.set(position, theta)


def size_name(factor: Factor) -> str:
    """Name of the sum of the scales of a factor's rows."""
    return f"{factor.name}.size"


def exchange_sums(rows: Rows, position: str, bias_mean: float, scaled: bool) -> Float64:
    """Sums over each block's rows of v v^T and of v, with v = (W_i, r_i).

    If `scaled`, each term is multiplied by the row's scale.

    Returns
    -------
    (blocks, D + 1, D) float64
        Sums of W_i W_i^T, r_i W_i and W_i.
    """
    totals = rows.update(conjugate.SUMS[False], theta=position)["total"]
    products = []
    for block, total in zip(rows.blocks, totals, strict=True):
        theta = block[position]
        shift = block.arrays.get(SHIFT.name)
        if bias_mean or shift is not None:
            means = np.full(len(theta), bias_mean)
            if shift is not None:
                means = means + shift[:, -1]
            theta = theta.copy()
            theta[:, -1] -= means
            total[-1] -= means.sum()
        if scaled:
            total[:] = np.einsum("ij,i->j", theta, block.row(WEIGHT.name), dtype=np.float64)
            theta = theta * np.sqrt(block[WEIGHT.name])
        products.append(inner(theta, theta))
    return np.concatenate([np.array(products), totals[:, None]], axis=1)


def draw_translation(
    mean: Mapping[Factor, Float64],
    precision: Mapping[Factor, Float64],
    sums: Mapping[Factor, Float64],
    *,
    sizes: Mapping[Factor, float],
    kappa: float,
    rng: Generator,
    intercept: Intercept | None = None,
) -> Translation:
    """Draw steps for all rows of H, then for all rows of W given the new H; and for the biases.

    Ordered levels have an intercept mu ~ N(0, 1 / lambda_0) in their thresholds. All biases a_i and
    mu may then also move by c, which changes no probability: d becomes (d, c), W_i becomes
    (W_i, -1), m becomes (m, mu), and kappa Lambda gets lambda_0 as another block.

    Parameters
    ----------
    mean, precision : dict of Factor to (D,), and to (D,) or (D, D) float64
        Means and precisions of the rows' priors; the last column is for the bias.
    sums : dict of Factor to (D + 1, D) float64
        Totals of `exchange_sums`.
    sizes : dict of Factor to float
        Number of rows of each factor or, if rows have scales, their sum.
    kappa : float
        Precision of m in units of Lambda.
    rng : Generator
    intercept : Intercept, optional
        Intercept of the likelihood, if it has one.
    """
    k = len(mean[Factor.W]) - 1
    rows: dict[Factor, Float64] = {}
    biases: dict[Factor, float] = {}
    for factor in (Factor.H, Factor.W):  # rows of `factor`, and biases of `other`
        other = OTHER[factor]
        n = sizes[other]
        prior = kappa * dense(precision[factor])[:k, :k]
        centre = mean[factor][:k]
        bias_precision = np.atleast_1d(precision[other][-1])[-1]
        products = sums[other][:k, :k]
        fit = sums[other][k, :k]
        total = sums[other][-1, :k]
        bias = sums[other][-1, k]
        if other in rows:  # the sums are those before the other factor's rows moved
            step = rows[other]
            cross = np.outer(total, step)
            products = products + cross + cross.T + n * np.outer(step, step)
            fit = fit + bias * step
            total = total + n * step
        if intercept is not None:
            prior = _bordered(prior, np.zeros(k), intercept.precision)
            products = _bordered(products, -total, n)
            fit = np.append(fit, -bias)
            centre = np.append(centre, intercept.value + sum(biases.values()))
        root = np.linalg.cholesky(prior + bias_precision * products)
        scaled = np.linalg.solve(root, bias_precision * fit - prior @ centre)
        drawn = np.linalg.solve(root.T, scaled + rng.standard_normal(len(scaled)))
        rows[factor] = drawn[:k].astype(np.float64)
        biases[other] = 0.0 if intercept is None else float(drawn[k])
    return Translation(rows, biases)


def _bordered(matrix: Float64, edge: Float64, corner: float) -> Float64:
    """A symmetric matrix with one more row and column, whose last element is `corner`."""
    return np.block([[matrix, edge[:, None]], [edge[None], np.full((1, 1), corner)]])
