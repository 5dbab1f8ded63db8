r"""Exchange of the means of one factor's rows against the biases of the other's.

The predictor a_i + b_j + W_i . H_j does not change if all H_j move by d and every bias a_i by -W_i . d. Nor does the
prior density of H if its mean m moves by d, too. Rows' means and biases explain the same differences between users (or
items), and chains that draw each given the others exchange them only over thousands of sweeps. The conditional
distribution of d is normal. With r_i the bias less its prior mean, lambda_a its precision, and
m ~ N(0, (kappa Lambda)^-1),

    d ~ N(Q^-1 (lambda_a sum_i r_i W_i - kappa Lambda m), Q^-1),    Q = kappa Lambda + lambda_a sum_i W_i W_i^T

and likewise for W and the biases b_j. If the likelihood has an intercept mu ~ N(0, 1 / lambda_0), as ordered levels
have in their thresholds, all biases a_i and mu may also move by c, which changes no probability: then d is (d, c), W_i
is (W_i, -1), m is (m, mu), and kappa Lambda has lambda_0 as another block. The move leaves the posterior invariant: the
translations by d form a group with Jacobian 1, so that d may be drawn from a density proportional to the posterior
along its orbit [Liu & Sabatti 2000, theorem 1].

[Liu & Sabatti 2000] Generalised Gibbs sampler and multigrid Monte Carlo for Bayesian computation. Biometrika 87.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dsgmcmc.kernels.formula import Formula
from dsgmcmc.kernels.products import gram
from dsgmcmc.model.conjugate import SUMS
from dsgmcmc.model.parts.base import DrawContext, Intercept
from dsgmcmc.model.quantity import SHIFT
from dsgmcmc.targets.state import Rows
from dsgmcmc.types import Factor, Float64, Purpose

#: Turns between moves, and turn of the first move. Earlier moves would only keep biases, which converge first, from
#: settling.
MOVE_EVERY, FIRST_MOVE = 5, 50

MOVE = Formula("theta = theta + step\nexchanged = across * theta", columns=("step", "across"), row_sums=("exchanged",))


class Translation(NamedTuple):
    """The steps of all rows and biases.

    Attributes
    ----------
    rows : dict of Factor to (K,) float64
        Step of all rows of a factor, and of their mean.
    biases : dict of Factor to float
        Step of all biases of a factor, besides the exchange with the rows of the other. The intercept moves by the sum
        of both.
    """

    rows: dict[Factor, Float64]
    biases: dict[Factor, float]


def sums(rows: Rows, position: str, bias_mean: float) -> Float64:
    """Sums over each block's rows of W_i W_i^T, r_i W_i and W_i: the outer products of (W_i, r_i), and their sum.

    Returns
    -------
    (blocks, D + 1, D) float64
    """
    totals, products = rows.update(SUMS[False], theta=position)["total"], []
    for block, total in zip(rows.blocks, totals, strict=True):
        theta, shift = block[position], block.arrays.get(SHIFT.name)
        if bias_mean or shift is not None:
            means = np.full(len(theta), bias_mean) + (0.0 if shift is None else shift[:, -1])
            theta = theta.copy()
            theta[:, -1] -= means
            total[-1] -= means.sum()
        products.append(gram(theta, np.ones(len(theta), theta.dtype)))
    return np.concatenate([np.array(products), totals[:, None]], axis=1)


def draw(
    mean: dict[Factor, Float64],
    precision: dict[Factor, Float64],
    sums: dict[Factor, Float64],
    counts: dict[Factor, int],
    kappa: float,
    rng: np.random.Generator,
    intercept: Intercept | None = None,
) -> Translation:
    """Draw the steps of all rows: first those of H, then those of W given the new H.

    Parameters
    ----------
    mean, precision : dict of Factor to (D,), and to (D,) or (D, D) float64
        Means and precisions of the rows' priors; the last column is the bias.
    sums : dict of Factor to (D + 1, D) float64
        Totals of `sums`.
    counts : dict of Factor to int
        Numbers of rows.
    kappa : float
        Precision of m in units of Lambda.
    rng : Generator
    intercept : Intercept, optional
        Intercept of the likelihood, if it has one.
    """
    k = len(mean[Factor.W]) - 1
    drawn = Translation({}, {})
    for factor, other in ((Factor.H, Factor.W), (Factor.W, Factor.H)):  # of the factor, against the other's biases
        dense = precision[factor] if precision[factor].ndim == 2 else np.diag(precision[factor])
        prior, centre = kappa * dense[:k, :k], mean[factor][:k]
        strength, n = np.atleast_1d(precision[other][-1])[-1], counts[other]
        products, fit = sums[other][:k, :k], sums[other][k, :k]
        total, bias = sums[other][-1, :k], sums[other][-1, k]
        if other in drawn.rows:
            before = drawn.rows[other]
            cross = np.outer(total, before)
            products = products + cross + cross.T + n * np.outer(before, before)
            fit, total = fit + bias * before, total + n * before
        if intercept is not None:
            now = intercept.value + sum(drawn.biases.values())
            prior = np.block([[prior, np.zeros((k, 1))], [np.zeros((1, k)), np.full((1, 1), intercept.precision)]])
            products = np.block([[products, -total[:, None]], [-total[None], np.full((1, 1), float(n))]])
            fit, centre = np.append(fit, -bias), np.append(centre, now)
        root = np.linalg.cholesky(prior + strength * products)
        scaled = np.linalg.solve(root, strength * fit - prior @ centre)
        step = np.linalg.solve(root.T, scaled + rng.standard_normal(len(scaled)))
        drawn.rows[factor] = step[:k].astype(np.float64)
        drawn.biases[other] = 0.0 if intercept is None else float(step[k])
    return drawn


def translate(
    context: DrawContext, mean: dict[Factor, Float64], precision: dict[Factor, Float64], bias_mean: float, kappa: float
) -> None:
    """Move the rows of both factors, their means, which change in place, and their biases. Collective.

    Parameters
    ----------
    context : DrawContext
    mean, precision : dict of Factor to (D,), and to (D,) or (D, D) float64
        Means and precisions of the rows' priors.
    bias_mean : float
        Prior mean of the biases.
    kappa : float
        Precision of m in units of Lambda.
    """
    circulation, k, law = context.circulation, len(mean[Factor.W]) - 1, context.law
    counts = dict(zip(Factor, circulation.ratings.shape, strict=True))

    def finish(total: dict[str, Float64]) -> dict[str, Float64]:
        by_factor = {factor: total[factor.name] for factor in Factor}
        rng = context.stream.generator(Purpose.HYPERPARAMETERS, part=3)
        drawn = draw(mean, precision, by_factor, counts, kappa, rng, law.intercept)
        return {factor.name: np.append(drawn.rows[factor], drawn.biases[factor]) for factor in Factor}

    partials = {rows.factor.name: sums(rows, context.position, bias_mean) for rows in circulation.rows_by_factor()}
    moved = circulation.ring.sum(partials, finish, {factor.name: (k + 1,) for factor in Factor})
    steps = {factor: moved[factor.name][:k] for factor in Factor}
    offset = float(steps[Factor.W] @ steps[Factor.H])
    for rows in circulation.rows_by_factor():
        step, across = (np.append(steps[f], 0.0).astype(rows.dtype) for f in (rows.factor, Factor(1 - rows.factor)))
        exchanged = rows.update(MOVE, theta=context.position, step=step, across=across)["exchanged"]
        exchanged -= moved[rows.factor.name][k]
        if rows.factor == Factor.W:  # H has moved before W
            exchanged -= offset
        for block, taken in rows.by_block(exchanged):
            block[context.position][:, -1] -= taken.astype(block.dtype)
    for factor in Factor:
        mean[factor][:k] += steps[factor]
    if law.intercept is not None:
        law.move_intercept(circulation.blocks(), sum(float(moved[factor.name][k]) for factor in Factor))
