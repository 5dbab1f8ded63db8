"""The stationary law of SGLD where it is known: with H held fixed the posterior of W is Gaussian.

A row's energy is then theta^T A theta / 2 - b^T theta with A = tau sum h h^T + Lambda over its ratings. At a constant
step eps SGLD is a linear recursion with a Gaussian law, whose mean is A^-1 b, and whose covariance S solves

    S = E[(I - eps A_t) S (I - eps A_t)^T] + 2 eps I + eps^2 Cov(A_t m - b_t)

over the parts t, of which a row sees one column block each. With one part, or with full gradients, that is
(A (I - eps A / 2))^-1.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from support import Model, csr, factor_target

from dsgmcmc.data.ratings import write_ratings
from dsgmcmc.model.target import FactorTarget
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.samplers.sgmcmc.sgld import SGLD, SGLDConfig
from dsgmcmc.types import Factor, ScheduleName

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

    def target(self, grid: int, schedule: ScheduleName, sampler: Sampler[Any, Any]) -> FactorTarget:
        model = Model(RANK, True, "fixed", 1.0, TAU)
        frozen = frozenset({Factor.H})
        target = factor_target(MPI.COMM_SELF, self.path, grid, schedule, model, sampler, frozen=frozen)
        target.model.rows.parameters.mean[Factor.W][0] = self.prior_mean
        target.model.rows.parameters.precision[Factor.W][0] = self.prior_precision
        self.hold(target)
        return target

    def hold(self, target: FactorTarget) -> None:
        """Set the columns to what they are held at."""
        for block in target.blocks():
            if block.factor == Factor.H:
                block["theta"][:] = self.h[block.start : block.start + len(block.counts)]

    def laws(self, target: FactorTarget, eps: float) -> list[Law]:
        """Of every row; from the ratings, not from the target's gradient."""
        found = []
        probability = target.circulation.schedule.probability if target.circulation.schedule else np.ones(1)
        centred = self.x.astype(np.float64) - self.x.astype(np.float64).mean()
        block_of = np.searchsorted(target.ratings.column_bounds, np.arange(COLUMNS), side="right") - 1
        for row in range(ROWS):
            row_block = int(np.searchsorted(target.ratings.row_bounds, row, side="right")) - 1
            part_of = (block_of[self.j] - row_block) % len(probability)
            parts = []
            for t, p in enumerate(probability):
                mine = (self.i == row) & (part_of == t)
                h = self.h[self.j[mine]].astype(np.float64)
                rating = centred[mine] - h[:, -1]
                h[:, -1] = 1.0
                a = TAU / p * h.T @ h + np.diag(self.prior_precision)
                parts.append((a, TAU / p * h.T @ rating + self.prior_precision * self.prior_mean))
            found.append(law(parts, probability, eps))
        return found


def batches(
    target: FactorTarget, sampler: Sampler[Any, Any], laws: list[Law], length: int = LENGTH, burn_in: int = BURN_IN
) -> tuple[np.ndarray, np.ndarray]:
    """Means over batches, far longer than correlations, of theta - m and of its outer products.

    Returns
    -------
    (BATCHES, ROWS, D) and (BATCHES, ROWS, D, D) float64
    """
    mean = np.array([each.mean for each in laws])
    first = np.zeros((BATCHES, *mean.shape))
    second = np.zeros((BATCHES, *mean.shape, mean.shape[1]))
    rows = [row for row, _ in target.circulation.pairs()]
    for iteration in range(burn_in + BATCHES * length):
        target.begin(iteration)
        sampler.step(target, iteration)
        batch = (iteration - burn_in) // length
        if batch >= 0:
            offset = np.concatenate([block["theta"] for block in rows]) - mean
            first[batch] += offset / length
            second[batch] += offset[:, :, None] * offset[:, None, :] / length
    return first, second


def z_scores(found: np.ndarray, expected: np.ndarray | float) -> np.ndarray:
    """Distance of the mean of independent batches from what is expected, in standard errors."""
    return (found.mean(axis=0) - expected) / (found.std(axis=0, ddof=1) / np.sqrt(len(found)))


@pytest.mark.parametrize(
    ("grid", "schedule", "gradient", "h"),
    [
        (1, "cyclic", "part", 0.7),
        (4, "random", "part", 0.35),
        pytest.param(4, "random", "full", 0.7, marks=pytest.mark.long),  # as on a grid of one, but for the tour
    ],
)
def test_mean_and_covariance(tmp_path: Path, grid: int, schedule: ScheduleName, gradient: str, h: float) -> None:
    """Of every row, at a step so large that the discretisation and the part's noise show clearly."""
    problem = Problem(tmp_path / "r.h5")
    sampler = SGLD(SGLDConfig(step_size=h, gradient=gradient), 0)
    target = problem.target(grid, schedule, sampler)
    eps = h / target.curvature_bound
    laws = problem.laws(target, eps)
    if target.sweep_length == 1:
        check_closed_form(problem, laws, eps)
    first, second = batches(target, sampler, laws)
    covariance = np.array([each.covariance for each in laws])
    assert np.abs(z_scores(first, 0.0)).max() < 5
    assert np.abs(z_scores(second, covariance)).max() < 5
    # the test has the power to tell: the continuous-time covariance is far away
    exact = np.array([each.covariance for each in problem.laws(target, 1e-9)])
    assert np.abs(z_scores(second, exact)).max() > 25


def check_closed_form(problem: Problem, laws: list[Law], eps: float) -> None:
    """With exact gradients the covariance is (A (I - eps A / 2))^-1."""
    for row, each in enumerate(laws):
        h = problem.h[problem.j[problem.i == row]].astype(np.float64)
        h[:, -1] = 1.0
        a = TAU * h.T @ h + np.diag(problem.prior_precision)
        assert 0.05 < eps * np.linalg.eigvalsh(a)[-1] < 2
        expected = np.linalg.inv(a @ (np.eye(3) - eps * a / 2))
        np.testing.assert_allclose(each.covariance, expected, rtol=1e-9)
