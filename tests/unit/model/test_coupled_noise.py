"""Priors with the scale of the row's noise: their gradients, their hyperparameters, features."""

from pathlib import Path

import numpy as np
import pytest
from chain_states import start_chain
from mpi4py import MPI
from scipy import stats
from support import applied, features_of, rows_of, write_cells

from dsgmcmc.config.run import RunConfig
from dsgmcmc.kernels.formulas.formula import Formula, RowPrior
from dsgmcmc.model import conjugate
from dsgmcmc.model.parts.base import NO_TERMS
from dsgmcmc.model.parts.exchange import exchange_sums
from dsgmcmc.model.parts.features import Design, FeatureEffects
from dsgmcmc.model.target import FactorTarget
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.types import Factor

ROWS = 6
D = 3


@pytest.mark.parametrize("shifted", [False, True], ids=["", "shifted"])
@pytest.mark.parametrize("dense", [False, True], ids=["", "dense"])
def test_gradient_of_the_prior_is_that_of_its_density(dense: bool, shifted: bool) -> None:
    """Against central differences of the log density, which are exact but for rounding."""
    rng = np.random.default_rng(4)
    theta = rng.normal(size=(ROWS, D))
    root = rng.normal(size=(D, D))
    full = root @ root.T + np.eye(D)
    diagonal = np.diag(full).copy()
    shift = rng.normal(size=(ROWS, D))
    scale = rng.gamma(2, 1, (ROWS, 1))
    prior = RowPrior(
        mean=rng.normal(size=D),
        precision=full if dense else diagonal,
        shift=shift if shifted else None,
        scale=scale,
    )
    out = np.zeros_like(theta)
    applied(Formula("out = grad_prior"), {"theta": theta, "out": out}, prior=lambda: prior)

    def energy(at: np.ndarray) -> float:
        total = 0.0
        for i in range(ROWS):
            mean = prior.mean + shift[i] if shifted else prior.mean
            precision = scale[i, 0] * (full if dense else np.diag(diagonal))
            covariance = np.linalg.inv(precision)
            total -= float(stats.multivariate_normal.logpdf(at[i], mean, covariance))
        return total

    for i, k in np.ndindex(theta.shape):
        step = np.zeros_like(theta)
        step[i, k] = 0.01
        slope = (energy(theta + step) - energy(theta - step)) / 0.02
        assert out[i, k] == pytest.approx(slope, rel=1e-7, abs=1e-8)


@pytest.mark.parametrize("dense", [False, True], ids=["normal-gamma", "normal-wishart"])
def test_hyperparameters_have_their_conditional_law(dense: bool) -> None:
    """Mean and precision from the prior, rows given them and given scales, then both given the
    rows: they are from the prior again [Geweke 2004].

    8,000 draws; Kolmogorov-Smirnov sees what is wrong by 2 %.
    """
    rng = np.random.default_rng(5)
    prior = conjugate.with_mean_variance(0.5)
    scores: dict[str, list[float]] = {"mean": [], "precision": []}
    for _ in range(8000):
        g = rng.gamma(2, 0.5, ROWS)
        if dense:
            precision = stats.wishart.rvs(2, np.eye(2), random_state=rng)
            mean = np.linalg.solve(np.linalg.cholesky(precision).T, rng.normal(size=2)) / 2**0.5
        else:
            diagonal = rng.gamma(prior.shape, 1 / prior.rate, 2)
            precision = np.diag(diagonal)
            mean = rng.normal(size=2) / np.sqrt(diagonal)
        offset = np.linalg.solve(np.linalg.cholesky(precision).T, rng.normal(size=(2, ROWS))).T
        rows = mean + offset / np.sqrt(g)[:, None]
        outer = (g * rows.T) @ rows
        average = g @ rows / g.sum()
        given = {"weight": float(g.sum()), "rng": rng, "more": NO_TERMS}
        if dense:
            drawn_mean, drawn = conjugate.draw_normal_wishart(average, outer, ROWS, **given)
            scores["mean"].append(2 * drawn_mean @ drawn @ drawn_mean)
            scores["precision"].append(drawn[0, 0])
        else:
            drawn_mean, drawn = conjugate.draw_normal_gamma(
                average, np.diag(outer), ROWS, prior=prior, **given
            )
            scores["mean"].append(drawn_mean[0] ** 2 * drawn[0])
            scores["precision"].append(drawn[0])
    of_mean = stats.chi2(2 if dense else 1)
    of_precision = stats.chi2(2) if dense else stats.gamma(prior.shape, scale=1 / prior.rate)
    assert stats.kstest(scores["mean"], of_mean.cdf).pvalue > 1e-3
    assert stats.kstest(scores["precision"], of_precision.cdf).pvalue > 1e-3


def test_products_of_features_are_weighted_by_the_rows_scales() -> None:
    """X^T diag(g) X of centred features, with a row without features, against dense matrices."""
    rng = np.random.default_rng(6)
    x = rng.normal(size=(ROWS, 4)).astype(np.float32)
    x[2] = 0.0
    ring = Ring(MPI.COMM_SELF, 1)
    design = Design({0: features_of(x, ("a", "b", "c", "d"), ("a",) * 4)}, ring)
    known = np.abs(x).sum(axis=1) > 0
    centred = np.where(known[:, None], x - x[known].mean(axis=0), 0.0)
    g = rng.gamma(2, 1, ROWS)
    np.testing.assert_allclose(
        design.gram(ring, {0: g}), (g * centred.T) @ centred, rtol=1e-5, atol=1e-5
    )
    np.testing.assert_allclose(design.gram(ring), centred.T @ centred, rtol=1e-5, atol=1e-5)


def scaled_chain(path: Path) -> FactorTarget:
    """A chain with features of both sides, scales and rows at random, whose draws are due."""
    rng = np.random.default_rng(7)
    i, j = np.nonzero(rng.random((20, 15)) < 0.5)
    x = rng.normal(size=len(i))
    sides = {}
    for side, n in (("rows", 20), ("cols", 15)):
        features = rng.normal(size=(n, 3)).astype(np.float32)
        features[-1] = 0.0
        sides[side] = features_of(features, ("a", "b", "c"), ("a", "b", "b"))
    data = write_cells(path / "r.h5", (20, 15), i, j, x, features=sides)
    settings = {"rank": 1, "grid": 2, "noise": "both", "coupled_noise": True}
    target, _ = start_chain(
        data, 0.5, RunConfig.from_settings(settings | {"sampler": {"name": "gibbs"}})
    )
    for block in target.blocks():
        block["theta"][:] = rng.normal(0.3, 1, block["theta"].shape)
        block["weight"][:] = rng.gamma(3, 1 / 3, block["weight"].shape)
        block["shift"][:] = block["described"][:] = rng.normal(size=block["shift"].shape)
    target.row_priors.parameters.precision = {f: np.array([0.7, 2.0]) for f in Factor}
    target.row_priors.parameters.mean = {f: np.array([0.4, 0.0]) for f in Factor}
    return target


def test_effects_of_features_have_their_conditional_law(tmp_path: Path) -> None:
    """B given rows, their scales and the drawn beta: whitened by dense matrices, standard normal.

    500 draws of twelve numbers; Kolmogorov-Smirnov sees what is wrong by 2 %.
    """
    target = scaled_chain(tmp_path)
    part = next(part for part in target.parts if isinstance(part, FeatureEffects))
    whitened = []
    for iteration in range(500):
        target.stream.iteration = iteration
        part.draw(target.context()._replace(hyper_sweep=1))
        for factor, design in part.designs.items():
            x = np.concatenate([design.product(b, np.eye(3)) for b in range(2)]).astype(float)
            g = rows_of(target, factor, "weight")
            residual = rows_of(target, factor) - target.row_priors.parameters.mean[factor]
            beta = part.parameters.strength[factor][design.groups]
            precision = (x.T * g[:, 0]) @ x + np.diag(beta)
            mean = np.linalg.solve(precision, x.T @ (g * residual))
            root = np.linalg.cholesky(precision).T
            deviation = root @ (part.parameters.effects[factor] - mean)
            whitened.append(deviation * np.sqrt([0.7, 2.0]))
    assert stats.kstest(np.ravel(whitened), "norm").pvalue > 1e-3


def test_sums_of_rows_are_weighted_by_their_scales(tmp_path: Path) -> None:
    """Those of hyperparameters and those of the exchange of means and biases, of rows less their
    shifts.
    """
    target = scaled_chain(tmp_path)
    for rows in target.rows_by_factor():
        theta, shift, g = (
            np.concatenate([block[name] for block in rows.blocks]).astype(float)
            for name in ("theta", "shift", "weight")
        )
        offset = theta - shift
        total, squares = conjugate.sums_of_rows(rows, "theta", dense=False, scaled=True)
        np.testing.assert_allclose(total.sum(axis=0), (g * offset).sum(axis=0), rtol=1e-5)
        np.testing.assert_allclose(squares.sum(axis=0), (g * offset**2).sum(axis=0), rtol=1e-5)
        _, products = conjugate.sums_of_rows(rows, "theta", dense=True, scaled=True)
        np.testing.assert_allclose(products.sum(axis=0), (g * offset).T @ offset, rtol=1e-5)
        np.testing.assert_allclose(conjugate.sums_of_scales(rows, True).sum(), g.sum(), rtol=1e-6)
        theta[:, 1] -= shift[:, 1]  # of the bias alone
        expected = np.concatenate([(g * theta).T @ theta, (g * theta).sum(axis=0)[None]])
        found = exchange_sums(rows, "theta", 0.0, scaled=True).sum(axis=0)
        np.testing.assert_allclose(found, expected, rtol=1e-4)
