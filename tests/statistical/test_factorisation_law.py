"""Factorisations whose posterior is known: by quadrature, or because it is normal where the columns
are held fixed.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chain_states import iterate, make_sampler
from mpi4py import MPI
from support import MODEL, Model, factor_target, rows_of, write_cells

from dsgmcmc.model.target import FactorTarget
from dsgmcmc.types import Factor

pytestmark = pytest.mark.statistical
COPIES = 2000
TAU = 4.0
MOMENTS = {
    "w^2": lambda w, h: w * w,
    "wh": lambda w, h: w * h,
    "w^2 h^2": lambda w, h: (w * h) ** 2,
    "w^4": lambda w, h: w**4,
}


@pytest.mark.parametrize(
    ("name", "section", "sweeps", "bias"),
    [
        ("gibbs", {}, 150, 0.0),
        ("baoab", {"step_size": 0.02, "warm_up": 0}, 4000, 0.005),
        ("sghmc", {"step_size": 0.02, "warm_up": 0, "gradient": "full", "gamma": 2.0}, 4000, 0.005),
    ],
    ids=["gibbs", "baoab", "sghmc"],
)
def test_a_factorisation_of_one_rating(
    tmp_path: Path, name: str, section: dict[str, Any], sweeps: int, bias: float
) -> None:
    """Moments of w and h by quadrature, from 2,000 copies: the only rating of row i is of column i,
    +1 or -1.

    Their means over the sweeps are independent, so each moment is compared within 4.5 standard
    errors of their spread, which is below 1 % of it; the steps leave half a per cent more. The
    metric is made of the other factor, so Gamma is zero [Ma 2015, eq. 3].
    """
    i = np.arange(COPIES)
    sign = np.where(i % 2, 1.0, -1.0)
    path = write_cells(tmp_path / "r.h5", (COPIES, COPIES), i, i, sign)
    model = replace(MODEL, rank=1, biases=False, prior="fixed", noise_precision=TAU)
    sampler = make_sampler(name, **section)
    target = factor_target(MPI.COMM_SELF, path, grid=2, model=model, sampler=sampler, seed=1)
    sampler.start(target, 1.0)
    totals = {moment: np.zeros(COPIES) for moment in MOMENTS}
    burn_in = sweeps // 7
    for iteration in iterate(target, sampler, burn_in + sweeps):
        if iteration >= burn_in:
            w = rows_of(target, Factor.W)[:, 0]
            h = sign * rows_of(target, Factor.H)[:, 0]
            for moment, function in MOMENTS.items():
                totals[moment] += function(w, h) / sweeps
    w, h = np.meshgrid(*[np.linspace(-7, 7, 1401)] * 2)
    density = np.exp(-(w**2 + h**2 + TAU * (1 - w * h) ** 2) / 2)
    for moment, means in totals.items():
        expected = (density * MOMENTS[moment](w, h)).sum() / density.sum()
        error = means.std() / np.sqrt(COPIES)
        assert error < 0.01 * expected * (2 if moment == "w^4" else 1), moment
        assert abs(means.mean() - expected) < 4.5 * error + bias * expected, moment


# ---------------------------------------------------------------------- columns held fixed

ROWS = 12
COLUMNS = 8
RANK = 2
PRECISION = 1.5
BATCHES = 100
LENGTH = 60
BURN_IN = 200
#: A mean and unlike precisions.
PRIOR_MEAN = np.array([0.3, -0.2, 0.0])
PRIOR_PRECISION = np.array([1.0, 3.0, 2.0])


def hold(target: FactorTarget, h: np.ndarray) -> None:
    """Set the columns to what they are held at."""
    for block in target.blocks():
        if block.factor == Factor.H:
            block["theta"][:] = h[block.start : block.start + len(block.counts)]


def posterior(
    i: np.ndarray, j: np.ndarray, x: np.ndarray, h: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Means and covariances of every row; from the ratings, not from the target's gradient."""
    means = []
    covariances = []
    for row in range(ROWS):
        features = h[j[i == row]]
        rating = (x - x.mean())[i == row] - features[:, -1]
        features[:, -1] = 1.0
        covariances.append(
            np.linalg.inv(PRECISION * features.T @ features + np.diag(PRIOR_PRECISION))
        )
        means.append(
            covariances[-1] @ (PRECISION * features.T @ rating + PRIOR_PRECISION * PRIOR_MEAN)
        )
    return np.array(means), np.array(covariances)


def z_scores(batches: np.ndarray, expected: np.ndarray | float) -> np.ndarray:
    """Distance of the mean of independent batches from what is expected, in standard errors."""
    return (batches.mean(axis=0) - expected) / (batches.std(axis=0, ddof=1) / np.sqrt(len(batches)))


def test_baoab_in_the_kronecker_metric_with_columns_held_fixed(tmp_path: Path) -> None:
    """BAOAB's mean and covariance of every row are exact at any step: |z| < 5 for all of them.

    The energy of a row is theta^T A theta / 2 - b^T theta with A = tau sum h h^T + Lambda over its
    ratings, so that its posterior is N(A^-1 b, A^-1).
    """
    rng = np.random.default_rng(5)
    i, j = np.nonzero(rng.random((ROWS, COLUMNS)) < 0.6)
    x = rng.normal(0.5, 1.0, len(i)).astype(np.float32)
    h = rng.normal(0, 0.8, (COLUMNS, RANK + 1)).astype(np.float32)
    path = write_cells(tmp_path / "r.h5", (ROWS, COLUMNS), i, j, x)
    sampler = make_sampler("baoab", metric="kronecker", step_size=0.3, warm_up=0, friction=0.5)
    target = factor_target(
        MPI.COMM_SELF, path, model=Model(RANK, True, "fixed", 1.0, PRECISION), sampler=sampler
    )
    prior = target.row_priors.parameters
    prior.mean[Factor.W][:] = PRIOR_MEAN
    prior.precision[Factor.W][:] = PRIOR_PRECISION
    hold(target, h)
    sampler.start(target, 0.1)
    hold(target, h)
    mean, covariance = posterior(i, j, x.astype(np.float64), h.astype(np.float64))
    first = np.zeros((BATCHES, *mean.shape))
    second = np.zeros((BATCHES, *covariance.shape))
    rows = [row for row, _ in target.circulation.pairs()]
    for iteration in iterate(target, sampler, BURN_IN + BATCHES * LENGTH):
        hold(target, h)
        if iteration >= BURN_IN:
            batch = (iteration - BURN_IN) // LENGTH
            offset = np.concatenate([block["theta"] for block in rows]) - mean
            first[batch] += offset / LENGTH
            second[batch] += offset[:, :, None] * offset[:, None, :] / LENGTH
    assert np.abs(z_scores(first, 0.0)).max() < 5
    assert np.abs(z_scores(second, covariance)).max() < 5
