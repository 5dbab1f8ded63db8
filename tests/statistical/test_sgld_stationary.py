"""The stationary law of SGLD where it is known: with H held fixed the posterior of W is Gaussian.

A row's energy is then theta^T A theta / 2 - b^T theta with A = tau sum h h^T + Lambda over its ratings. At a constant
step eps SGLD is a linear recursion with a Gaussian law, whose mean is A^-1 b, and whose covariance S solves

    S = E[(I - eps A_t) S (I - eps A_t)^T] + 2 eps I + eps^2 Cov(A_t m - b_t)

over the parts t, of which a row sees one column block each. With one part that is (A (I - eps A / 2))^-1.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from support import csr, factor_world

from dsgmcmc.data.ratings import write_ratings
from dsgmcmc.samplers.sgmcmc.sgld import SGLD, SGLDConfig
from dsgmcmc.targets.factorisation.target import FactorWorld
from dsgmcmc.types import ScheduleName

pytestmark = pytest.mark.statistical

ROWS, COLUMNS, RANK = 12, 8, 2
TAU = 1.5
BATCHES, LENGTH, BURN_IN = 100, 400, 500


@dataclass(frozen=True)
class Law:
    """Stationary mean (D,) and covariance (D, D) of a row."""

    mean: np.ndarray
    covariance: np.ndarray


def law(parts: list[tuple[np.ndarray, np.ndarray]], probability: np.ndarray, eps: float) -> Law:
    """Stationary law of a row whose part t has the precision A_t and the drift b_t, with probability p_t."""
    d = len(parts[0][1])
    one = np.eye(d)
    a = sum(p * part[0] for p, part in zip(probability, parts, strict=True))
    b = sum(p * part[1] for p, part in zip(probability, parts, strict=True))
    mean = np.linalg.solve(a, b)
    noise = 2 * eps * one
    kept = np.zeros((d * d, d * d))
    for p, (a_t, b_t) in zip(probability, parts, strict=True):
        error = a_t @ mean - b_t  # of mean 0
        noise = noise + p * eps**2 * np.outer(error, error)
        step = one - eps * a_t
        kept += p * np.kron(step, step)
    covariance = np.linalg.solve(np.eye(d * d) - kept, noise.ravel()).reshape(d, d)
    return Law(mean, covariance)


class Problem:
    """Twelve rows with ratings of eight fixed columns, and a prior with unlike precisions and a mean."""

    def __init__(self, path: Path) -> None:
        rng = np.random.default_rng(5)
        self.path = path
        seen = rng.random((ROWS, COLUMNS)) < 0.6
        self.i, self.j = np.nonzero(seen)
        self.x = rng.normal(0.5, 1.0, len(self.i)).astype(np.float32)
        none = csr(ROWS, *(np.zeros(0, int),) * 3)
        write_ratings(path, csr(ROWS, self.i, self.j, self.x), none, np.arange(ROWS), np.arange(COLUMNS))
        self.h = rng.normal(0, 0.8, (COLUMNS, RANK + 1)).astype(np.float32)
        self.prior_mean = np.array([0.3, -0.2, 0.0])
        self.prior_precision = np.array([1.0, 3.0, 2.0])

    def world(self, grid: int, schedule: ScheduleName) -> FactorWorld:
        world = factor_world(MPI.COMM_SELF, self.path, grid, schedule, rank=RANK, frozen=frozenset({"H"}))
        world.state = {
            "tau": np.array([TAU]),
            "W.mean": self.prior_mean[None],
            "W.precision": self.prior_precision[None],
            "H.mean": np.zeros((1, RANK + 1)),
            "H.precision": np.ones((1, RANK + 1)),
        }
        for side in world.sides():
            if side.factor == "H":
                side["theta"][:] = self.h[side.start : side.start + len(side.counts)]
        return world

    def laws(self, world: FactorWorld, eps: float) -> list[Law]:
        """Of every row; from the ratings, not from the world's gradient."""
        found = []
        centred = self.x.astype(np.float64) - self.x.astype(np.float64).mean()
        block_of = np.searchsorted(world.ratings.column_bounds, np.arange(COLUMNS), side="right") - 1
        for row in range(ROWS):
            row_block = int(np.searchsorted(world.ratings.row_bounds, row, side="right")) - 1
            parts = []
            for t in range(world.grid):
                mine = (self.i == row) & (block_of[self.j] == (row_block + t) % world.grid)
                h = self.h[self.j[mine]].astype(np.float64)
                target = centred[mine] - h[:, -1]
                h[:, -1] = 1.0
                scale = TAU / world.schedule.probability[t]
                a = scale * h.T @ h + np.diag(self.prior_precision)
                parts.append((a, scale * h.T @ target + self.prior_precision * self.prior_mean))
            found.append(law(parts, world.schedule.probability, eps))
        return found


def batches(world: FactorWorld, sampler: SGLD, laws: list[Law]) -> tuple[np.ndarray, np.ndarray]:
    """Means over batches, far longer than correlations, of theta - m and of its outer products.

    Returns
    -------
    (BATCHES, ROWS, D) and (BATCHES, ROWS, D, D) float64
    """
    mean = np.array([each.mean for each in laws])
    first = np.zeros((BATCHES, *mean.shape))
    second = np.zeros((BATCHES, *mean.shape, mean.shape[1]))
    rows = list(world.rows())
    for iteration in range(BURN_IN + BATCHES * LENGTH):
        world.iteration = iteration
        sampler.step(world, iteration)
        batch = (iteration - BURN_IN) // LENGTH
        if batch >= 0:
            offset = np.concatenate([side["theta"] for side in rows]) - mean
            first[batch] += offset / LENGTH
            second[batch] += offset[:, :, None] * offset[:, None, :] / LENGTH
    return first, second


def z_scores(found: np.ndarray, expected: np.ndarray | float) -> np.ndarray:
    """Distance of the mean of independent batches from what is expected, in standard errors."""
    return (found.mean(axis=0) - expected) / (found.std(axis=0, ddof=1) / np.sqrt(len(found)))


@pytest.mark.parametrize(("grid", "schedule", "h"), [(1, "cyclic", 0.7), (4, "random", 0.35)])
def test_mean_and_covariance(tmp_path: Path, grid: int, schedule: ScheduleName, h: float) -> None:
    """Of every row, at a step so large that the discretisation and the part's noise show clearly."""
    problem = Problem(tmp_path / "r.h5")
    world = problem.world(grid, schedule)
    eps = h / world.peak_count
    laws = problem.laws(world, eps)
    if grid == 1:
        check_closed_form(problem, world, laws, eps)
    first, second = batches(world, SGLD(SGLDConfig(step_size=h), 0), laws)
    covariance = np.array([each.covariance for each in laws])
    assert np.abs(z_scores(first, 0.0)).max() < 5
    assert np.abs(z_scores(second, covariance)).max() < 5
    # the test has the power to tell: the continuous-time covariance is far away
    exact = np.array([each.covariance for each in problem.laws(world, 1e-9)])
    assert np.abs(z_scores(second, exact)).max() > 25


def check_closed_form(problem: Problem, world: FactorWorld, laws: list[Law], eps: float) -> None:
    """With exact gradients the covariance is (A (I - eps A / 2))^-1."""
    for row, each in enumerate(laws):
        h = problem.h[problem.j[problem.i == row]].astype(np.float64)
        h[:, -1] = 1.0
        a = TAU * h.T @ h + np.diag(problem.prior_precision)
        assert 0.05 < eps * np.linalg.eigvalsh(a)[-1] < 2
        expected = np.linalg.inv(a @ (np.eye(3) - eps * a / 2))
        np.testing.assert_allclose(each.covariance, expected, rtol=1e-9)
