"""Ratings of levels: the law of a tiny problem against Hamiltonian Monte Carlo in NumPy, and calibration."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from scipy.special import expit
from support import csr, sample

from dsgmcmc.data.ratings import open_ratings, write_ratings
from dsgmcmc.diagnostics.calibration import calibration
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
    of_factors, gap_precision = 2 * (rows + columns), GAP_START

    def thresholds(at: np.ndarray) -> np.ndarray:
        phi = np.tile(at[-2:], (rows, 1))
        phi[:, 0] += MAX_DEVIATION * np.tanh(at[of_factors:-2] / MAX_DEVIATION) if own else 0.0
        return values_of(phi)

    def energy(at: np.ndarray) -> tuple[float, np.ndarray]:
        w, h = at[: 2 * rows].reshape(rows, 2), at[2 * rows : of_factors].reshape(columns, 2)
        phi, gaps = at[-2:], at[of_factors:-2]
        cuts = np.pad(thresholds(at), ((0, 0), (1, 1)), constant_values=((0, 0), (-1e9, 1e9)))
        eta = w[i, 0] * h[j, 0] + w[i, 1] + h[j, 1]
        up, down = expit(cuts[i, level + 1] - eta), expit(cuts[i, level] - eta)
        d_up, d_down = up * (1 - up) / (up - down), -down * (1 - down) / (up - down)
        slope, g_w, g_h = -(d_up + d_down), precision * w, precision * h
        for k, (to_w, to_h) in enumerate(((h[j, 0], w[i, 0]), (1.0, 1.0))):
            g_w[:, k] -= np.bincount(i, slope * to_w, rows)
            g_h[:, k] -= np.bincount(j, slope * to_h, columns)
        by_row = [np.bincount(i, d_up * (level == r) + d_down * (level == r + 1), rows) for r in range(2)]
        of_gap = -(cuts[:, 2] - cuts[:, 1]) * by_row[0]
        g_phi = phi / SDS**2 - np.array([of_gap.sum(), by_row[0].sum() + by_row[1].sum()])
        g_gaps = gap_precision * gaps - of_gap / np.cosh(gaps / MAX_DEVIATION) ** 2 if own else gaps
        value = -np.log(up - down).sum() + precision * (w**2).sum() / 2 + precision * (h**2).sum() / 2
        value += (phi**2 / SDS**2).sum() / 2 + gap_precision * (gaps**2).sum() / 2
        return value, np.concatenate([g_w.ravel(), g_h.ravel(), g_gaps, g_phi])

    rng = np.random.default_rng(0)
    at = np.concatenate([rng.normal(0, 0.3, of_factors), np.zeros(rows if own else 0), [0.5, 0.5]])
    value, gradient = energy(at)
    found, of_rows = [], []
    for _ in range(draws + 300):
        r = rng.normal(size=len(at))
        start, new, g = value + r @ r / 2, at, gradient
        eps = 0.08 * rng.uniform(0.8, 1.2)
        for _ in range(20):
            r = r - eps / 2 * g
            new = new + eps * r
            new_value, g = energy(new)
            r = r - eps / 2 * g
        if np.log(rng.random()) < start - new_value - r @ r / 2:
            at, value, gradient = new, new_value, g
        if own:
            gap_precision = rng.gamma(1 + rows / 2) / (GAP_PRIOR.rate + (at[of_factors:-2] ** 2).sum() / 2)
            value, gradient = energy(at)
        found.append(values_of(at[-2:]))
        of_rows.append(thresholds(at))
    assert len(np.unique(np.array(found)[:, 0])) > 0.8 * len(found)  # it does accept
    return np.array(found[300:]), np.array(of_rows[300:])


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
