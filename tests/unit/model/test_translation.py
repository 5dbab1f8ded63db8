"""Means of a factor's rows against biases of the other's: predictors stay, and so does the
posterior.
"""

from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from scipy import stats
from support import Model, factor_target, rows_of, write_planted

from dsgmcmc.model.parts.base import Intercept
from dsgmcmc.model.parts.exchange import draw_translation
from dsgmcmc.model.target import FactorTarget
from dsgmcmc.samplers.gibbs import Gibbs, GibbsConfig
from dsgmcmc.types import Factor, Float64

K = 2
SHAPE = (7, 5)


def state_of(target: FactorTarget) -> dict[Factor, Float64]:
    """Rows of both factors."""
    return {factor: rows_of(target, factor) for factor in Factor}


def predictors(rows: dict[Factor, Float64]) -> Float64:
    """W_i . H_j + a_i + b_j of all pairs."""
    w = rows[Factor.W]
    h = rows[Factor.H]
    return np.asarray(w[:, :K] @ h[:, :K].T + w[:, K:] + h[:, K])


def test_predictors_and_distances_from_means_stay(tmp_path: Path) -> None:
    """What the likelihood and the priors of the factors' columns see is as before; means and biases
    are not.
    """
    data = write_planted(tmp_path / "r.h5")
    sampler = Gibbs(GibbsConfig(), 0)
    target = factor_target(MPI.COMM_SELF, data, model=Model(K, exchanges=True), sampler=sampler)
    rng = np.random.default_rng(3)
    parameters = target.row_priors.parameters
    for block in target.blocks():
        block["theta"][:] = rng.normal(0.3, 0.7, block["theta"].shape)
    for mean in parameters.mean.values():
        mean[:K] = rng.normal(0.3, 0.7, K)
    before = state_of(target)
    means = {factor: parameters.mean[factor].copy() for factor in Factor}
    target.row_priors.move(target.context()._replace(hyper_sweep=1))
    after = state_of(target)
    np.testing.assert_allclose(predictors(after), predictors(before), atol=1e-5)
    for factor in Factor:
        moved = parameters.mean[factor] - means[factor]
        assert np.abs(moved[:K]).min() > 0.01
        assert moved[K] == 0
        np.testing.assert_allclose(
            after[factor][:, :K] - before[factor][:, :K],
            np.tile(moved[:K], (len(after[factor]), 1)),
            atol=1e-6,
        )


@pytest.mark.parametrize("intercept", [False, True], ids=["", "intercept"])
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("scaled", [False, True], ids=["", "scaled"])
def test_move_leaves_the_prior_as_it_is(dense: bool, intercept: bool, scaled: bool) -> None:
    """Parameters drawn from the prior, moved, are still from it, whatever there is to exchange.

    Only priors are in the law of the move. A term that is left out, or counted twice, gives scores
    of another variance, or means that depend on the biases. If `scaled`, the precision of every row
    has a scale of its own. 4,000 draws of 1 to 7 scores: Kolmogorov-Smirnov sees what is wrong by
    5 %.
    """
    kappa = 2.0 if dense else 1.0
    bias_mean = 0.4
    rng = np.random.default_rng(11)
    scores: dict[str, list[Float64]] = {
        "means": [],
        "biases": [],
        "means along what biases fit": [],
    }
    scores |= {"intercept": []} if intercept else {}
    for _ in range(4000):
        rows = {}
        mean = {}
        precision = {}
        sums = {}
        scales = {}
        for factor, n in zip(Factor, SHAPE, strict=True):
            root = np.diag(rng.gamma(4, 0.5, K + 1) ** 0.5)
            root[1, 0] = 0.7 if dense else 0.0
            # the first move is wide, the second well determined
            root[K, K] *= 0.2 if factor == Factor.W else 3.0
            full = root @ root.T
            precision[factor] = full if dense else np.diag(full)
            mean[factor] = np.append(
                np.linalg.solve(root[:K, :K].T, rng.normal(size=K)) / kappa**0.5, bias_mean
            )
            g = rng.gamma(2, 0.5, n) if scaled else np.ones(n)
            scales[factor] = g
            offset = np.linalg.solve(root.T, rng.normal(size=(K + 1, n))).T
            rows[factor] = mean[factor] + offset / np.sqrt(g)[:, None]
            centred = rows[factor] - np.append(np.zeros(K), bias_mean)
            sums[factor] = np.concatenate([(g * centred.T) @ centred, (g @ centred)[None]])
        shared = Intercept(rng.normal(0, 0.5), 4.0) if intercept else None
        steps, biases = draw_translation(
            mean,
            precision,
            sums,
            sizes={factor: float(g.sum()) for factor, g in scales.items()},
            kappa=kappa,
            rng=rng,
            intercept=shared,
        )
        rows[Factor.W][:, K] += biases[Factor.W] - rows[Factor.W][:, :K] @ steps[Factor.H]
        rows[Factor.H][:, K] += (
            biases[Factor.H] - (rows[Factor.H][:, :K] + steps[Factor.H]) @ steps[Factor.W]
        )
        if shared is not None:
            scores["intercept"].append(np.array([2.0 * (shared.value + sum(biases.values()))]))
        for factor, other in ((Factor.W, Factor.H), (Factor.H, Factor.W)):
            full = precision[factor] if dense else np.diag(precision[factor])
            root = np.linalg.cholesky(full)
            standardised = kappa**0.5 * root[:K, :K].T @ (mean[factor][:K] + steps[factor])
            deviations = scales[other] * (rows[other][:, K] - bias_mean)
            fit = deviations @ (rows[other][:, :K] + steps[other])
            scores["means"].append(standardised)
            of_unit = np.sqrt(scales[factor]) * (rows[factor][:, K] - bias_mean)
            scores["biases"].append(of_unit * root[K, K])
            scores["means along what biases fit"].append(
                np.array([standardised @ fit / np.linalg.norm(fit)])
            )
    for values in scores.values():
        assert stats.kstest(np.concatenate(values), "norm").pvalue > 1e-4
