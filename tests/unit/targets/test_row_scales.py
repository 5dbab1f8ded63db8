"""Row scales: the draws of nu and of the scales, and what weights do to the draws of the rows' mean and precision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from scipy import stats
from support import factor_target, write_planted

from dsgmcmc.config.run import RunConfig
from dsgmcmc.errors import InputError
from dsgmcmc.model.conjugate import draw_normal_gamma, draw_normal_wishart, sums_of_rows
from dsgmcmc.model.hyperparameters import HyperparameterModel
from dsgmcmc.model.noise import NU_GRID
from dsgmcmc.model.priors.base import Conditions
from dsgmcmc.model.target import FactorTarget
from dsgmcmc.samplers.sgmcmc.baoab import BAOAB, BAOABConfig
from dsgmcmc.samplers.sgmcmc.sghmc import SGHMC, SGHMCConfig
from dsgmcmc.samplers.underdamped import Underdamped
from dsgmcmc.types import Factor, PriorName

ROWS, COLUMNS, DRAWS = 12, 9, 800
P_VALUE = 1e-5  # of a few tests of exact laws at fixed seeds


def target_of(tmp_path: Path, prior: PriorName) -> tuple[FactorTarget, np.ndarray, np.ndarray]:
    """A target whose rows of W have scales, at a state of no symmetry; theta of W and Lambda."""
    model = HyperparameterModel(2, True, prior, 1.0, 2.0)
    target = factor_target(
        MPI.COMM_SELF, write_planted(tmp_path / "r.h5", ROWS, COLUMNS), model=model, scaled=(Factor.W,)
    )
    rng = np.random.default_rng(3)
    root = rng.normal(size=(3, 3))
    lambda_ = root @ root.T + np.eye(3) if prior == "normal-wishart" else np.diag([0.5, 1.0, 4.0])
    target.hyperparameters.precision[Factor.W][0] = lambda_ if prior == "normal-wishart" else lambda_.diagonal()
    target.hyperparameters.mean[Factor.W][0] = [0.5, -1.0, 0.0]
    theta = np.array([0.5, -1.0, 0.0]) + rng.standard_t(4, (ROWS, 3)) @ np.linalg.cholesky(np.linalg.inv(lambda_)).T
    for block in target.blocks():
        if block.factor == Factor.W:
            block["theta"][:] = theta[block.start : block.start + len(block.counts)]
    return target, theta, lambda_


@pytest.mark.parametrize("prior", ["normal-gamma", "normal-wishart"])
def test_nu_and_then_the_scales_have_their_conditional_laws(tmp_path: Path, prior: PriorName) -> None:
    """Nu as of rows of a multivariate Student's t, by chi^2 over the quarters of its law; then s, by its own Gamma law.

    The other factor has no scales: nothing of it changes.
    """
    target, theta, lambda_ = target_of(tmp_path, prior)
    given = Conditions(target.circulation, target._prior, "theta", target.stream)
    u = theta - [0.5, -1.0, 0.0]
    squares = ((u @ lambda_) * u).sum(axis=1)
    found, uniform = [], []
    for iteration in range(DRAWS):
        target.stream.iteration = iteration
        target.row_scales.draw(given, 1)
        nu = float(target.row_scales.parameters.nu[Factor.W][0])
        s = np.concatenate([block.row("row_scale") for block in target.blocks() if block.factor == Factor.W])
        found.append(nu)
        uniform.append(stats.gamma.cdf(s, (nu + 3) / 2, scale=2 / (nu + squares)))
    assert all((block.row("row_scale") == 1).all() for block in target.blocks() if block.factor == Factor.H)
    laws = [stats.multivariate_t(shape=np.linalg.inv(lambda_), df=nu) for nu in NU_GRID]
    log_density = np.array([law.logpdf(u).sum() for law in laws])
    density = np.exp(log_density - log_density.max())
    quarter = np.minimum(4 * np.cumsum(density) / density.sum(), 3.999).astype(int)
    expected = np.bincount(quarter, density / density.sum()) * DRAWS
    counts = np.bincount(quarter[np.searchsorted(NU_GRID, found)], minlength=len(expected))
    kept = expected > 0
    assert stats.chisquare(counts[kept], expected[kept]).pvalue > P_VALUE
    assert stats.kstest(np.ravel(uniform), "uniform").pvalue > P_VALUE


@pytest.mark.parametrize("dense", [False, True])
def test_sums_of_rows_are_weighted(tmp_path: Path, dense: bool) -> None:
    """By the scales, as NumPy finds them; of the factor without scales by 1."""
    target, _, _ = target_of(tmp_path, "normal-gamma")
    rng = np.random.default_rng(5)
    for block in target.blocks():
        if block.factor == Factor.W:
            block.row("row_scale")[:] = rng.gamma(2.0, 0.5, len(block.counts))
        total, products, weight = sums_of_rows(block, "theta", dense)
        theta, s = block["theta"].astype(np.float64), block.row("row_scale").astype(np.float64)
        np.testing.assert_allclose(total, s @ theta, rtol=1e-5, atol=1e-6)
        outer = (theta.T * s) @ theta
        np.testing.assert_allclose(products, outer if dense else outer.diagonal(), rtol=1e-5, atol=1e-6)
        assert weight == pytest.approx(s.sum())


def test_mean_and_precision_given_weights() -> None:
    """Two rows of weights 3 and 1/2, by quadrature over lambda and m; Wishart's Lambda, K = 1, likewise."""
    x, s, rng = np.array([0.3, 2.0]), np.array([3.0, 0.5]), np.random.default_rng(2)
    average, squares = np.array([s @ x / s.sum()]), np.array([s @ x**2])
    m, lambda_ = np.meshgrid(np.linspace(-12, 12, 1201), np.exp(np.linspace(-9, 4, 600)), indexing="ij")
    normals = sum(stats.norm.logpdf(each, m, 1 / np.sqrt(weight * lambda_)) for each, weight in zip(x, s, strict=True))
    cases = {
        "gamma": (stats.gamma.logpdf(lambda_, 1, scale=1 / 5), 1.0),
        "wishart": (stats.chi2.logpdf(lambda_, 1), 2.0),
    }
    for name, (log_prior, beta) in cases.items():
        log_density = normals + log_prior + stats.norm.logpdf(m, 0, 1 / np.sqrt(beta * lambda_)) + np.log(lambda_)
        density = np.exp(log_density - log_density.max())
        density /= density.sum()
        if name == "gamma":
            draws = [draw_normal_gamma(average, squares, 2, rng, weight=s.sum()) for _ in range(20_000)]
        else:
            draws = [draw_normal_wishart(average, squares[:, None], 2, rng, weight=s.sum()) for _ in range(20_000)]
        means, precisions = (np.ravel([draw[part] for draw in draws]) for part in (0, 1))
        for found, values in ((means, m), (np.log(precisions), np.log(lambda_))):
            # 20,000 draws know a mean to 0.007 sds: four times that
            sd = np.sqrt((density * values**2).sum() - (density * values).sum() ** 2)
            assert found.mean() == pytest.approx((density * values).sum(), abs=0.03 * sd), name
            if values is not m:  # of m few degrees of freedom are left, whose tails know the sd badly
                assert found.std() == pytest.approx(sd, rel=0.03), name


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        (BAOAB, BAOABConfig()),
        (BAOAB, BAOABConfig(metric="kronecker")),
        (SGHMC, SGHMCConfig(gradient="full", metric="fisher")),
    ],
    ids=["baoab", "kronecker", "sghmc"],
)
def test_halves_of_a_kick_make_a_whole(tmp_path: Path, kind: type[Underdamped[Any]], config: Any) -> None:
    """Taken apart on either side of draws that change nothing, they move as when joined: none is lost, none twice."""
    path = write_planted(tmp_path / "r.h5", ROWS, COLUMNS)
    model = HyperparameterModel(2, True, "fixed", 1.0, 2.0, first=100)
    found = []
    for scaled in ((), tuple(Factor)):
        sampler = kind(config, 0)
        target = factor_target(MPI.COMM_SELF, path, model=model, sampler=sampler, scaled=scaled)
        sampler.start(target, 0.3)
        for iteration in range(4):
            target.begin(iteration)
            sampler.step(target, iteration)
        found.append(np.concatenate([block[name].ravel() for block in target.blocks() for name in ("theta", "r")]))
    assert all(sampler.halves(target, block) for block in target.blocks())
    # in float32, and the halves are rounded apart
    np.testing.assert_allclose(*found, rtol=1e-3, atol=1e-4)


def test_interleaved_chains_are_refused() -> None:
    """Each would need scales of its own."""
    with pytest.raises(InputError, match="another --sampler"):
        RunConfig.of({"row_scales": "user", "sampler": "hamcmc"}).resolved()
