"""Clicks: the pseudo-posterior of a tiny matrix against Gibbs sampling in NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from support import csr, sample

from dsgmcmc.data.ratings import write_ratings
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.run import Run

pytestmark = pytest.mark.statistical
ROWS, COLUMNS, RANK, TAU, A0, PRECISION = 9, 7, 2, 6.0, 0.3, 2.0


def reference(clicked: np.ndarray, draws: int) -> np.ndarray:
    """Scores s of every draw, (draws, rows, columns): rows are normal given the columns, and these given the rows."""
    rng = np.random.default_rng(0)
    w, h = rng.normal(size=(ROWS, RANK)), rng.normal(size=(COLUMNS, RANK))
    found = []
    for _ in range(draws + 200):
        for own, other, seen in ((w, h, clicked), (h, w, clicked.T)):
            for row in range(len(own)):
                precision = TAU * (other.T * (seen[row] + A0)) @ other + PRECISION * np.eye(RANK)
                root = np.linalg.cholesky(precision)
                mean = np.linalg.solve(precision, TAU * seen[row] @ other)
                own[row] = mean + np.linalg.solve(root.T, rng.standard_normal(RANK))
        found.append(w @ h.T)
    return np.array(found[200:])


@pytest.fixture(scope="module")
def clicked() -> np.ndarray:
    """Where there are clicks."""
    return (np.random.default_rng(3).random((ROWS, COLUMNS)) < 0.35).astype(float)


@pytest.fixture(scope="module")
def exact(clicked: np.ndarray) -> np.ndarray:
    """Draws of the scores of all zeros."""
    return reference(clicked, 4000)[:, clicked == 0]


@pytest.mark.parametrize(
    "sampler",
    [
        {"name": "gibbs"},
        pytest.param({"name": "baoab", "metric": "kronecker", "step_size": 0.1}, marks=pytest.mark.long),
        {"name": "baoab", "metric": "fisher", "step_size": 0.1},
    ],
    ids=["gibbs", "kronecker", "fisher"],
)
def test_scores_have_the_law_of_the_pseudo_posterior(
    tmp_path: Path, clicked: np.ndarray, exact: np.ndarray, sampler: dict[str, Any]
) -> None:
    """Means of the scores of all zeros within 0.15 sds, sds within 12 %: some three times what 3,000 draws err by."""
    pairs = np.nonzero(clicked), np.nonzero(clicked == 0)
    parts = [csr(ROWS, i, j, 1 + (i + j) % 5) for i, j in pairs]  # values do not matter
    write_ratings(tmp_path / "r.h5", *parts, np.arange(ROWS), np.arange(COLUMNS), seed=0, source="clicks")
    settings = {"rank": RANK, "grid": 2, "prior": "fixed", "prior_precision": PRECISION, "noise_precision": TAU}
    settings |= {"sampler": sampler, "zero_weight": A0, "burn_in": 500, "save_draws": 0, "evaluate_every": 10_000}
    settings |= {"thin": 1, "iterations": 3500} if sampler["name"] == "gibbs" else {"thin": 3, "iterations": 9500}
    assert sample(MPI.COMM_SELF, tmp_path / "r.h5", tmp_path / "run", likelihood="all-cells", **settings) == 0
    found, sd = predict_test(Run(tmp_path / "run")), exact.std(axis=0)
    np.testing.assert_allclose(found.mean / sd, exact.mean(axis=0) / sd, atol=0.15)
    np.testing.assert_allclose(np.sqrt(found.variance) / sd, 1.0, atol=0.12)
