"""Priors with the scale of the row's noise: their gradients, their hyperparameters, features."""

import numpy as np
import pytest
from mpi4py import MPI
from scipy import stats
from support import applied, features_of

from dsgmcmc.kernels.formulas.formula import Formula, RowPrior
from dsgmcmc.model import conjugate
from dsgmcmc.model.parts.base import NO_TERMS
from dsgmcmc.model.parts.features import Design
from dsgmcmc.parallel.ring import Ring

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
