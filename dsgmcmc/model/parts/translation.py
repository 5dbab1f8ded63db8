r"""Moves of what the means of one factor's rows explain against the biases of the other's.

The predictor a_i + b_j + W_i . H_j stays as it is where all H_j move by d and every bias a_i by -W_i . d. So does the
prior of H if its mean m moves along: rows' means and biases explain the same differences between users, or items, and
chains that draw each given the others exchange them for thousands of sweeps. The conditional of d is normal. With r_i
the bias less its prior mean, lambda_a its precision, and m ~ N(0, (kappa Lambda)^-1),

    d ~ N(Q^-1 (lambda_a sum_i r_i W_i - kappa Lambda m), Q^-1),    Q = kappa Lambda + lambda_a sum_i W_i W_i^T

and the same for W and the biases b_j. It leaves the posterior invariant: d -> theta is a group of translations whose
Jacobian is 1, so that a draw of d along the posterior's density needs no other factor [Liu & Sabatti 2000, theorem 1].

[Liu & Sabatti 2000] Generalised Gibbs sampler and multigrid Monte Carlo for Bayesian computation. Biometrika 87.
"""

from __future__ import annotations

import numpy as np

from dsgmcmc.kernels.formula import Formula
from dsgmcmc.kernels.products import gram
from dsgmcmc.model.conjugate import SUMS
from dsgmcmc.model.parts.base import DrawContext
from dsgmcmc.model.quantity import SHIFT
from dsgmcmc.targets.state import Blocks
from dsgmcmc.types import Factor, Float64, Purpose

#: Turns between moves, and the first. Earlier ones only keep biases, which are the first to be found, from settling.
EVERY, FIRST = 5, 50

MOVE = Formula("theta = theta + step\nexchanged = across * theta", columns=("step", "across"), row_sums=("exchanged",))


def sums(rows: Blocks, position: str, bias_mean: float) -> Float64:
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
) -> dict[Factor, Float64]:
    """Draw how far all rows of a factor move: first of H, then of W given H where it has moved to.

    Parameters
    ----------
    mean, precision : dict of Factor to (D,), and to (D,) or (D, D) float64
        Of the rows' priors; the last column is the bias.
    sums : dict of Factor to (D + 1, D) float64
        Totals of `sums`.
    counts : dict of Factor to int
        Numbers of rows.
    kappa : float
        Precision of m in units of Lambda.
    rng : Generator

    Returns
    -------
    dict of Factor to (K,) float64
    """
    k = len(mean[Factor.W]) - 1
    found: dict[Factor, Float64] = {}
    for factor, other in ((Factor.H, Factor.W), (Factor.W, Factor.H)):  # of the factor, against the other's biases
        dense = precision[factor] if precision[factor].ndim == 2 else np.diag(precision[factor])
        own, strength = kappa * dense[:k, :k], np.atleast_1d(precision[other][-1])[-1]
        products, fit, total = sums[other][:k, :k], sums[other][k, :k], sums[other][-1, :k]
        bias = sums[other][-1, k]
        if other in found:
            before = found[other]
            cross = np.outer(total, before)
            products = products + cross + cross.T + counts[other] * np.outer(before, before)
            fit = fit + bias * before
        root = np.linalg.cholesky(own + strength * products)
        centre = np.linalg.solve(root, strength * fit - own @ mean[factor][:k])
        found[factor] = np.asarray(np.linalg.solve(root.T, centre + rng.standard_normal(k)), np.float64)
    return found


def translate(
    context: DrawContext, mean: dict[Factor, Float64], precision: dict[Factor, Float64], bias_mean: float, kappa: float
) -> None:
    """Move the rows of both factors, their means, which change in place, and their biases. Collective.

    Parameters
    ----------
    context : DrawContext
    mean, precision : dict of Factor to (D,), and to (D,) or (D, D) float64
        Of the rows' priors.
    bias_mean : float
        Prior mean of the biases.
    kappa : float
        Precision of m in units of Lambda.
    """
    circulation, k = context.circulation, len(mean[Factor.W]) - 1
    counts = dict(zip(Factor, circulation.ratings.shape, strict=True))

    def finish(total: dict[str, Float64]) -> dict[str, Float64]:
        by_factor = {factor: total[factor.name] for factor in Factor}
        rng = context.stream.generator(Purpose.HYPERPARAMETERS, part=3)
        drawn = draw(mean, precision, by_factor, counts, kappa, rng)
        return {factor.name: step for factor, step in drawn.items()}

    partials = {rows.factor.name: sums(rows, context.position, bias_mean) for rows in circulation.together()}
    steps = circulation.ring.sum(partials, finish, {factor.name: (k,) for factor in Factor})
    offset = float(steps[Factor.W.name] @ steps[Factor.H.name])
    for rows in circulation.together():
        own, other = (np.append(steps[f.name], 0.0).astype(rows.dtype) for f in (rows.factor, Factor(1 - rows.factor)))
        exchanged = rows.update(MOVE, theta=context.position, step=own, across=other)["exchanged"]
        if rows.factor == Factor.W:  # H has moved before W
            exchanged -= offset
        for block, taken in rows.by_block(exchanged):
            block[context.position][:, -1] -= taken.astype(block.dtype)
    for factor in Factor:
        mean[factor][:k] += steps[factor.name]
