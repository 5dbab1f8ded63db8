"""Ratings of levels: the law of a tiny problem against Hamiltonian Monte Carlo in NumPy, and calibration."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hamiltonian import CHAINS, hamiltonian, indicator
from mpi4py import MPI
from scipy.special import expit
from support import csr, sample

from dsgmcmc.data.ratings import open_ratings, write_ratings
from dsgmcmc.diagnostics.scores import calibration
from dsgmcmc.model.likelihoods.thresholds import (
    GAP_PRIOR,
    GAP_SD,
    GAP_START,
    MAX_DEVIATION,
    MIDDLE_SD,
    values_of,
)
from dsgmcmc.posterior.run import Run

pytestmark = pytest.mark.statistical
ROWS, COLUMNS = 10, 8
THRESHOLDS = np.array([-1.0, 1.2])
SDS = np.array([GAP_SD, MIDDLE_SD])


def write_levels(path: Path, rows: int, columns: int, n: int, thresholds: np.ndarray, test: float) -> None:
    """Write ratings 1, 2, ... of planted biases and one dimension, a `test` fraction held out."""
    rng = np.random.default_rng(5)
    cells = np.sort(rng.choice(rows * columns, n, replace=False))
    i, j = np.divmod(cells, columns)
    w, h = rng.normal(size=rows), rng.normal(size=columns)
    eta = w[i] * h[j] + rng.normal(0, 0.7, rows)[i] + rng.normal(0, 0.7, columns)[j]
    x = 1.0 + (rng.logistic(size=n) + eta > thresholds[:, None]).sum(axis=0)
    held = rng.random(n) < test
    parts = [csr(rows, i[chosen], j[chosen], x[chosen]) for chosen in (~held, held)]
    write_ratings(path, *parts, np.arange(rows), np.arange(columns), seed=0, source="levels")


def reference(data: Path, precision: float, draws: int, own: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Thresholds by HMC over biases, one latent dimension and the thresholds' coordinates, (draws, 2).

    And those of every row, (draws, rows, 2), where rows have their `own`: HMC goes over the logarithms of their gaps,
    too, and the precision of these is drawn in turns.
    """
    with open_ratings(data) as ratings:
        indptr, j, x = ratings.slab("train", 0, ratings.n_rows)
        rows, columns = ratings.n_rows, ratings.n_cols
    i, level = np.repeat(np.arange(rows), np.diff(indptr)), np.round(x).astype(int) - 1
    by_row, by_column = indicator(i, rows), indicator(j, columns)
    of_factors, gap_precision, rng = 2 * (rows + columns), np.full(CHAINS, GAP_START), np.random.default_rng(1)

    def thresholds(at: np.ndarray) -> np.ndarray:
        phi = np.repeat(at[:, None, -2:], rows, axis=1)
        if own:
            phi[..., 0] += MAX_DEVIATION * np.tanh(at[:, of_factors:-2] / MAX_DEVIATION)
        return values_of(phi)

    def energy(at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        theta = at[:, :of_factors].reshape(len(at), rows + columns, 2)
        w, h, gaps, phi = theta[:, :rows], theta[:, rows:], at[:, of_factors:-2], at[:, -2:]
        cuts = np.pad(thresholds(at), ((0, 0), (0, 0), (1, 1)), constant_values=((0, 0), (0, 0), (-1e9, 1e9)))
        eta = w[:, i, 0] * h[:, j, 0] + w[:, i, 1] + h[:, j, 1]
        up, down = expit(cuts[:, i, level + 1] - eta), expit(cuts[:, i, level] - eta)
        d_up, d_down = up * (1 - up) / (up - down), -down * (1 - down) / (up - down)
        slope, g_theta = -(d_up + d_down), precision * theta
        g_theta[:, :rows, 0] -= (slope * h[:, j, 0]) @ by_row
        g_theta[:, rows:, 0] -= (slope * w[:, i, 0]) @ by_column
        g_theta[:, :rows, 1] -= slope @ by_row
        g_theta[:, rows:, 1] -= slope @ by_column
        first, second = ((d_up * (level == r) + d_down * (level == r + 1)) @ by_row for r in range(2))
        of_gap = -(cuts[..., 2] - cuts[..., 1]) * first
        g_phi = phi / SDS**2 - np.stack([of_gap.sum(axis=1), (first + second).sum(axis=1)], axis=1)
        value = -np.log(up - down).sum(axis=1) + precision * (theta**2).sum(axis=(1, 2)) / 2
        value += (phi**2 / SDS**2).sum(axis=1) / 2
        gradient = [g_theta.reshape(len(at), of_factors), g_phi]
        if own:
            value += gap_precision * (gaps**2).sum(axis=1) / 2
            gradient.insert(1, gap_precision[:, None] * gaps - of_gap / np.cosh(gaps / MAX_DEVIATION) ** 2)
        return value, np.concatenate(gradient, axis=1)

    start = rng.normal(0, 0.3, (CHAINS, of_factors))
    start = np.hstack([start, np.zeros((CHAINS, rows if own else 0)), np.full((CHAINS, 2), 0.5)])
    found, of_rows = [], []
    for at in hamiltonian(energy, start, 0.08, draws):
        if own:
            rate = GAP_PRIOR.rate + (at[:, of_factors:-2] ** 2).sum(axis=1) / 2
            gap_precision[:] = rng.gamma(1 + rows / 2, size=CHAINS) / rate
        found.append(values_of(at[:, -2:]))
        of_rows.append(thresholds(at))
    return np.concatenate(found), np.concatenate(of_rows)


def test_thresholds_have_the_law_of_the_posterior(tmp_path: Path) -> None:
    """Means within 0.15 posterior sds, sds within 12 %: about three times what the draws of both err by."""
    data = tmp_path / "r.h5"
    write_levels(data, ROWS, COLUMNS, 60, THRESHOLDS, 0.0)
    exact, _ = reference(data, 1.0, 1500)
    sampler = {"name": "baoab", "step_size": 0.1}
    settings = {"rank": 1, "grid": 2, "prior": "fixed", "prior_precision": 1.0, "sampler": sampler, "thin": 4}
    settings |= {"iterations": 8000, "burn_in": 500, "save_draws": 0, "evaluate_every": 8000}
    assert sample(MPI.COMM_SELF, data, tmp_path / "run", likelihood="ordinal-logit", **settings) == 0
    found = Run(tmp_path / "run").traces[0]["thresholds"]
    sd = exact.std(axis=0)
    np.testing.assert_allclose(found.mean(axis=0) / sd, exact.mean(axis=0) / sd, atol=0.15)
    np.testing.assert_allclose(found.std(axis=0) / sd, 1.0, atol=0.12)


@pytest.mark.long
def test_thresholds_of_rows_have_the_law_of_the_posterior(tmp_path: Path) -> None:
    """Those of all, and the logarithm of every row's gap: a row that hardly uses the lowest level has a long tail.

    Means within 0.25 posterior sds, sds within 20 %, and within 6 % over the rows: about three times what 400 draws and
    those of the reference err by.
    """
    data = tmp_path / "r.h5"
    write_levels(data, ROWS, COLUMNS, 60, THRESHOLDS, 0.0)
    exact, of_rows = reference(data, 1.0, 3000, own=True)
    sampler = {"name": "baoab", "step_size": 0.1}
    settings = {"rank": 1, "grid": 2, "prior": "fixed", "prior_precision": 1.0, "sampler": sampler, "thin": 5}
    settings |= {"iterations": 12_500, "burn_in": 500, "save_draws": 400, "evaluate_every": 12_500}
    assert sample(MPI.COMM_SELF, data, tmp_path / "run", likelihood="ordinal-logit", thresholds="user", **settings) == 0
    run = Run(tmp_path / "run")
    found, sd = run.traces[0]["thresholds"], exact.std(axis=0)
    np.testing.assert_allclose(found.mean(axis=0) / sd, exact.mean(axis=0) / sd, atol=0.25)
    np.testing.assert_allclose(found.std(axis=0) / sd, 1.0, atol=0.2)
    own = np.array([run.draw(number).own_thresholds for number in range(len(run.draws))])
    gaps, expected = (np.log(np.diff(each, axis=2)[..., 0]) for each in (own, of_rows))
    sd = expected.std(axis=0)
    np.testing.assert_allclose(gaps.mean(axis=0) / sd, expected.mean(axis=0) / sd, atol=0.25)
    np.testing.assert_allclose(gaps.std(axis=0) / sd, 1.0, atol=0.2)
    assert np.mean(gaps.std(axis=0) / sd) == pytest.approx(1.0, abs=0.06)


def test_predictions_of_levels_are_calibrated(tmp_path: Path) -> None:
    """Intervals of 50, 80 and 90 % hold as many of 2,400 held-out ratings, to 3 points: three standard errors.

    And the thresholds that made the ratings are found, to 0.35: their posterior sds are about 0.1.
    """
    data, thresholds = tmp_path / "r.h5", np.array([-2.0, -0.7, 0.4, 2.2])
    write_levels(data, 200, 120, 12_000, thresholds, 0.2)
    settings = {"rank": 2, "noise": "both", "iterations": 900, "burn_in": 300, "save_draws": 2}
    assert sample(MPI.COMM_SELF, data, tmp_path / "run", likelihood="ordinal-logit", **settings) == 0
    run = Run(tmp_path / "run")
    scores = calibration(run)
    for level in (0.5, 0.8, 0.9):
        assert scores["coverage"][level] == pytest.approx(level, abs=0.03)
    assert max(scores["pit"]) < 1.4 * min(scores["pit"])
    np.testing.assert_allclose(run.traces[0]["thresholds"].mean(axis=0), thresholds, atol=0.35)
