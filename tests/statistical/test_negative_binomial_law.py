"""Counts: the law of a tiny problem against Hamiltonian Monte Carlo in NumPy, calibration, and a step that is safe."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hamiltonian import CHAINS, hamiltonian, indicator
from mpi4py import MPI
from scipy.stats import nbinom, poisson
from shapes import SHAPES
from support import csr, sample

from dsgmcmc.data.ratings import open_ratings, write_ratings
from dsgmcmc.diagnostics.scores import calibration
from dsgmcmc.model.likelihoods import Levels
from dsgmcmc.model.likelihoods.negative_binomial import NODES, PRIOR_SD, START_DISPERSION, draw_dispersion
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.run import Run

pytestmark = pytest.mark.statistical
ROWS, COLUMNS = 10, 8


def write_counts(path: Path, rows: int, columns: int, n: int, sd: float, test: float) -> np.ndarray:
    """Write counts of planted biases of this sd and two dimensions, a `test` fraction held out; return its rates."""
    rng = np.random.default_rng(5)
    i, j = np.divmod(np.sort(rng.choice(rows * columns, n, replace=False)), columns)
    w, h = rng.normal(0, 0.6, (rows, 2)), rng.normal(0, 0.6, (columns, 2))
    rate = np.exp(0.7 + (w[i] * h[j]).sum(axis=1) + rng.normal(0, sd, rows)[i] + rng.normal(0, sd, columns)[j])
    x, held = rng.poisson(rate), rng.random(n) < test
    parts = [csr(rows, i[chosen], j[chosen], x[chosen]) for chosen in (~held, held)]
    write_ratings(path, *parts, np.arange(rows), np.arange(columns), seed=0, source="counts")
    return rate[held]


def reference(data: Path, precision: float, draws: int) -> np.ndarray:
    """Rates of the held-out cells by HMC over biases and one latent dimension, (draws, q)."""
    with open_ratings(data) as ratings:
        (indptr, j, x), (ends, columns_of, _) = (ratings.slab(part, 0, ROWS) for part in ("train", "test"))
        origin = np.array([0.0, np.log(ratings.mean) / 2])
    i, tested = np.repeat(np.arange(ROWS), np.diff(indptr)), np.repeat(np.arange(ROWS), np.diff(ends))
    by_row, by_column = indicator(i, ROWS), indicator(j, COLUMNS)

    def parts(at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        theta = at.reshape(len(at), ROWS + COLUMNS, 2)
        return theta[:, :ROWS], theta[:, ROWS:]

    def energy(at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        w, h = parts(at)
        eta = w[:, i, 0] * h[:, j, 0] + w[:, i, 1] + h[:, j, 1]
        slope = x - np.exp(eta)
        g_w, g_h = precision * (w - origin), precision * (h - origin)
        g_w[..., 0] -= (slope * h[:, j, 0]) @ by_row
        g_h[..., 0] -= (slope * w[:, i, 0]) @ by_column
        g_w[..., 1] -= slope @ by_row
        g_h[..., 1] -= slope @ by_column
        prior = precision * (((w - origin) ** 2).sum(axis=(1, 2)) + ((h - origin) ** 2).sum(axis=(1, 2))) / 2
        gradient = np.concatenate([g_w, g_h], axis=1).reshape(at.shape)
        return prior - (x * eta - np.exp(eta)).sum(axis=1), gradient

    start = np.tile(origin, ROWS + COLUMNS) + np.random.default_rng(0).normal(0, 0.1, (CHAINS, 2 * (ROWS + COLUMNS)))
    found = []
    for at in hamiltonian(energy, start, 0.06, draws):
        w, h = parts(at)
        eta = w[:, tested, 0] * h[:, columns_of, 0] + w[:, tested, 1] + h[:, columns_of, 1]
        found.append(np.exp(eta))
    return np.concatenate(found)


def test_rates_have_the_law_of_the_posterior(tmp_path: Path) -> None:
    """Means within 0.15 posterior sds, sds within 20 %: about three times what the draws of both err by.

    Rates have long tails; four times as many draws of both agreed to 0.06 and 12 %.
    """
    data = tmp_path / "r.h5"
    write_counts(data, ROWS, COLUMNS, 70, 0.4, 0.15)
    exact = reference(data, 4.0, 3000)
    sampler = {"name": "baoab", "step_size": 0.1}
    settings = {"rank": 1, "grid": 2, "prior": "fixed", "prior_precision": 4.0, "sampler": sampler, "thin": 4}
    settings |= {"iterations": 10_000, "burn_in": 500, "save_draws": 0, "evaluate_every": 10_000}
    assert sample(MPI.COMM_SELF, data, tmp_path / "run", likelihood="negative-binomial", **settings) == 0
    test, sd = predict_test(Run(tmp_path / "run")), exact.std(axis=0)
    np.testing.assert_allclose((test.mean - exact.mean(axis=0)) / sd, 0.0, atol=0.15)
    np.testing.assert_allclose(np.sqrt(test.variance) / sd, 1.0, atol=0.2)


@pytest.mark.parametrize("truncated", [False, True])
def test_the_dispersion_has_its_law_given_the_rates(truncated: bool) -> None:
    """By quadrature: of 8,000 draws, worth more than 1,500, the mean within 0.1 sds and the sd within 10 %."""
    rng = np.random.default_rng(3)
    rate = rng.gamma(2.0, 1.5, 700)
    x = rng.negative_binomial(1.5, 1.5 / (1.5 + rate))
    if truncated:
        rate, x = rate[x > 0], x[x > 0]
    grid = np.linspace(-2.0, 5.0, 3001)
    log_p = -(((grid - np.log(START_DISPERSION)) / PRIOR_SD) ** 2) / 2
    for k, r in enumerate(np.exp(grid)):
        law = nbinom(r, r / (r + rate))
        log_p[k] += (law.logpmf(x) - (law.logsf(0) if truncated else 0.0)).sum()
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    mean = p @ grid
    table, r, found = Levels(*np.unique(x.astype(float), return_counts=True)), 10.0, []
    for _ in range(8000):
        nodes = r * np.exp(NODES)[:, None]
        rise = np.log1p(rate / nodes)
        sums = (-(x + nodes) * rise - (np.log(-np.expm1(-nodes * rise)) if truncated else 0.0)).sum(axis=1)
        r = draw_dispersion(r, sums, table, rng)
        found.append(np.log(r))
    sd = np.sqrt(p @ (grid - mean) ** 2)
    assert abs(np.mean(found[200:]) - mean) < 0.1 * sd
    assert np.std(found[200:]) == pytest.approx(sd, rel=0.1)


def test_counts_of_heavy_tails_run_at_the_defaults(tmp_path: Path) -> None:
    """Visits 1 to 95, nine in ten of which are 1 or 2: finite, calibrated to 4 points, and better than Poisson.

    The tail is that of a power law of exponent 3, which no law here has. Gaussian ratings diverge on such data.
    """
    data = SHAPES["check-ins"].make(1).prepare(tmp_path / "r.h5")
    settings = {"iterations": 250, "save_draws": 2, "seed": 1}
    assert sample(MPI.COMM_SELF, data, tmp_path / "run", likelihood="negative-binomial", **settings) == 0
    run = Run(tmp_path / "run")
    scores = calibration(run)
    assert np.isfinite(predict_test(run).mean).all()
    for level in (0.5, 0.8, 0.9):
        assert scores["coverage"][level] == pytest.approx(level, abs=0.04)
    x = predict_test(run).rating
    alone = poisson.logpmf(x, 0.77) - poisson.logsf(0, 0.77)  # of the mean 1.43, whoever and wherever
    assert scores["log_predictive_density"] > alone.mean()


def test_rates_that_differ_a_thousandfold_are_calibrated_at_the_default_step(tmp_path: Path) -> None:
    """Neither the way in nor the steep walls of rows without counts make it diverge, and intervals hold.

    Of 1,200 held-out counts of 1 to thousands 50, 80 and 90 % lie inside to 4 points, three standard errors, and their
    log probability is within 0.15 of the truth's.
    """
    data = tmp_path / "r.h5"
    rate = write_counts(data, 200, 120, 8000, 1.3, 0.15)
    settings = {"rank": 2, "iterations": 700, "burn_in": 300, "save_draws": 2}
    assert sample(MPI.COMM_SELF, data, tmp_path / "run", likelihood="negative-binomial", **settings) == 0
    run = Run(tmp_path / "run")
    scores = calibration(run)
    for level in (0.5, 0.8, 0.9):
        assert scores["coverage"][level] == pytest.approx(level, abs=0.04)
    assert max(scores["pit"]) < 1.7 * min(scores["pit"])
    truth = poisson.logpmf(predict_test(run).rating, rate).mean()
    assert truth - 0.15 < scores["log_predictive_density"] < truth
    assert predict_test(run).rating.max() > 300
