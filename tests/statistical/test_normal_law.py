"""A factorisation whose posterior is normal, because H is held fixed.

With H fixed a row's energy is theta^T A theta / 2 - b^T theta with A = tau sum h h^T + Lambda over its ratings. At a
constant step eps SGLD is a linear recursion with a Gaussian law, whose mean is A^-1 b, and whose covariance S solves

    S = E[(I - eps A_t) S (I - eps A_t)^T] + 2 eps I + eps^2 Cov(A_t m - b_t)

over the parts t, of which a row sees one column block each. With one part that is (A (I - eps A / 2))^-1.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chain_states import iterate, make_sampler, z_scores
from mpi4py import MPI
from support import Model, factor_target, write_cells

from dsgmcmc.model.target import FactorTarget
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.types import Factor, ScheduleName

pytestmark = pytest.mark.statistical

ROWS, COLUMNS, RANK, TAU, BATCHES = 12, 8, 2, 1.5, 100


def law(parts: list[tuple[np.ndarray, np.ndarray]], probability: np.ndarray, eps: float) -> tuple[np.ndarray, ...]:
    """Mean (D,) and covariance (D, D) of a row whose part t has the precision A_t and the drift b_t, with p_t."""
    d = len(parts[0][1])
    one = np.eye(d)
    a, b = (sum(p * part[k] for p, part in zip(probability, parts, strict=True)) for k in range(2))
    mean = np.linalg.solve(a, b)
    noise, kept = 2 * eps * one, np.zeros((d * d, d * d))
    for p, (a_t, b_t) in zip(probability, parts, strict=True):
        error = a_t @ mean - b_t  # of mean 0
        noise = noise + p * eps**2 * np.outer(error, error)
        step = one - eps * a_t
        kept += p * np.kron(step, step)
    return mean, np.linalg.solve(np.eye(d * d) - kept, noise.ravel()).reshape(d, d)


class Problem:
    """Twelve rows with ratings of eight fixed columns, and a prior with unlike precisions and a mean."""

    def __init__(self, path: Path) -> None:
        rng = np.random.default_rng(5)
        self.path = path
        self.i, self.j = np.nonzero(rng.random((ROWS, COLUMNS)) < 0.6)
        self.x = rng.normal(0.5, 1.0, len(self.i)).astype(np.float32)
        write_cells(path, (ROWS, COLUMNS), self.i, self.j, self.x)
        self.h = rng.normal(0, 0.8, (COLUMNS, RANK + 1)).astype(np.float32)
        self.prior_mean, self.prior_precision = np.array([0.3, -0.2, 0.0]), np.array([1.0, 3.0, 2.0])

    def target(self, grid: int, schedule: ScheduleName, sampler: Sampler[Any, Any]) -> FactorTarget:
        model = Model(RANK, True, "fixed", 1.0, TAU)
        target = factor_target(MPI.COMM_SELF, self.path, grid, schedule, model, sampler)
        target.row_priors.parameters.mean[Factor.W][0] = self.prior_mean
        target.row_priors.parameters.precision[Factor.W][0] = self.prior_precision
        self.hold(target)
        return target

    def hold(self, target: FactorTarget) -> None:
        """Set the columns to what they are held at."""
        for block in target.blocks():
            if block.factor == Factor.H:
                block["theta"][:] = self.h[block.start : block.start + len(block.counts)]

    def laws(self, target: FactorTarget, eps: float) -> tuple[np.ndarray, np.ndarray]:
        """Means and covariances of every row; from the ratings, not from the target's gradient."""
        pairs = []
        probability = target.circulation.schedule.probability if target.circulation.schedule else np.ones(1)
        centred = self.x.astype(np.float64) - self.x.astype(np.float64).mean()
        block_of = np.searchsorted(target.ratings.column_bounds, np.arange(COLUMNS), side="right") - 1
        for row in range(ROWS):
            row_block = int(np.searchsorted(target.ratings.row_bounds, row, side="right")) - 1
            part_of = (block_of[self.j] - row_block) % len(probability)
            parts = []
            for t, p in enumerate(probability):
                in_part = (self.i == row) & (part_of == t)
                h = self.h[self.j[in_part]].astype(np.float64)
                rating = centred[in_part] - h[:, -1]
                h[:, -1] = 1.0
                a = TAU / p * h.T @ h + np.diag(self.prior_precision)
                parts.append((a, TAU / p * h.T @ rating + self.prior_precision * self.prior_mean))
            pairs.append(law(parts, probability, eps))
        means, covariances = map(np.array, zip(*pairs, strict=True))
        return means, covariances


def batches(
    target: FactorTarget, sampler: Sampler[Any, Any], mean: np.ndarray, length: int, burn_in: int
) -> tuple[np.ndarray, np.ndarray]:
    """Means over batches of theta - m (BATCHES, ROWS, D), and of its outer products (BATCHES, ROWS, D, D)."""
    first = np.zeros((BATCHES, *mean.shape))
    second = np.zeros((BATCHES, *mean.shape, mean.shape[1]))
    rows = [row for row, _ in target.circulation.pairs()]
    columns = [(block, block["theta"].copy()) for block in target.blocks() if block.factor == Factor.H]
    for iteration in iterate(target, sampler, burn_in + BATCHES * length):
        for block, theta in columns:
            block["theta"][:] = theta
        batch = (iteration - burn_in) // length
        if batch >= 0:
            offset = np.concatenate([block["theta"] for block in rows]) - mean
            first[batch] += offset / length
            second[batch] += offset[:, :, None] * offset[:, None, :] / length
    return first, second


@pytest.mark.parametrize(("grid", "schedule", "h"), [(1, "cyclic", 0.7), (4, "random", 0.35)])
def test_sgld_with_columns_held_fixed(tmp_path: Path, grid: int, schedule: ScheduleName, h: float) -> None:
    """Mean and covariance of every row, at a step so large that discretisation and the part's noise show: |z| < 5."""
    problem = Problem(tmp_path / "r.h5")
    sampler = make_sampler("sgld", step_size=h, gradient="part")
    target = problem.target(grid, schedule, sampler)
    mean, covariance = problem.laws(target, h / target.curvature_bound)
    first, second = batches(target, sampler, mean, 400, 500)
    assert np.abs(z_scores(first, 0.0)).max() < 5
    assert np.abs(z_scores(second, covariance)).max() < 5
    # the test has the power to tell: the continuous-time covariance is far away
    assert np.abs(z_scores(second, problem.laws(target, 1e-9)[1])).max() > 25


def test_baoab_in_the_kronecker_metric_with_columns_held_fixed(tmp_path: Path) -> None:
    """BAOAB's mean and covariance are exact at any step: |z| < 5 for all of them."""
    problem = Problem(tmp_path / "r.h5")
    sampler = make_sampler("baoab", metric="kronecker", step_size=0.3, warm_up=0, friction=0.5)
    target = problem.target(4, "cyclic", sampler)
    sampler.start(target, 0.1)
    problem.hold(target)
    mean, covariance = problem.laws(target, 1e-9)
    first, second = batches(target, sampler, mean, 60, 200)
    assert np.abs(z_scores(first, 0.0)).max() < 5
    assert np.abs(z_scores(second, covariance)).max() < 5
