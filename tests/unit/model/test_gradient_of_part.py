"""The stochastic gradient of a part: its mean over the parts, weighted by how often each is visited, is the gradient.

The full gradient is written here from the model's definition, in float64, from the ratings file itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from support import MODEL, Model, cells_of, factor_target, write_planted

from dsgmcmc.model.target import FactorTarget
from dsgmcmc.types import Factor, ScheduleName

ROWS, COLUMNS = 61, 37
TAU = 2.5
Arrays = dict[Factor, np.ndarray]


def model(biases: bool, heteroscedastic: bool) -> Model:
    """Three latent dimensions."""
    return replace(MODEL, rank=3, biases=biases, heteroscedastic=tuple(Factor) if heteroscedastic else ())


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_planted(tmp_path_factory.mktemp("data") / "r.h5", ROWS, COLUMNS, share=0.6)


class Problem:
    """A random state, prior and weights, whole and in float64."""

    def __init__(self, dimension: int, dense: bool, heteroscedastic: bool) -> None:
        rng = np.random.default_rng(7)
        self.size = {Factor.W: ROWS, Factor.H: COLUMNS}
        self.theta = {f: rng.normal(0, 1, (n, dimension)).astype(np.float32) for f, n in self.size.items()}
        self.mean = {f: rng.normal(0, 1, dimension) for f in Factor}
        self.precision = {f: rng.gamma(2, 1, dimension) for f in Factor}
        if dense:
            roots = {f: rng.normal(0, 1, (dimension, dimension)) for f in Factor}
            self.precision = {f: root @ root.T + np.eye(dimension) for f, root in roots.items()}
        draw = (lambda n: rng.gamma(3, 1 / 3, n).astype(np.float32)) if heteroscedastic else np.ones
        self.g = {f: draw(n) for f, n in self.size.items()}

    def put(self, target: FactorTarget) -> None:
        """Set a target to this state."""
        target.noise.parameters.tau[:] = TAU
        prior = target.row_priors.parameters
        prior.mean = {f: value[None] for f, value in self.mean.items()}
        prior.precision = {f: value[None] for f, value in self.precision.items()}
        for block in target.blocks():
            rows = slice(block.start, block.start + len(block.counts))
            block["theta"][:] = self.theta[block.factor][rows]
            if target.likelihood.heteroscedastic:
                block["weight"][:, 0] = self.g[block.factor][rows]

    def gradient(self, path: Path, biases: bool, prior: bool) -> tuple[Arrays, Arrays, float]:
        """Gradient of the energy of W and H, the sizes of its terms added up, and the weighted squared errors."""
        i, j, x = cells_of(path)
        centred = x.astype(np.float64)
        centred -= centred.mean()
        theta = {f: value.astype(np.float64) for f, value in self.theta.items()}
        feature = {f: value.copy() for f, value in theta.items()}
        error = centred.copy()
        if biases:
            error -= theta[Factor.W][i, -1] + theta[Factor.H][j, -1]
            feature[Factor.W][:, -1] = feature[Factor.H][:, -1] = 1.0
        k = slice(None, -1) if biases else slice(None)
        error -= (theta[Factor.W][i, k] * theta[Factor.H][j, k]).sum(axis=1)
        weight = TAU * self.g[Factor.W][i] * self.g[Factor.H][j]
        moment = -(weight * error)[:, None]
        terms = {Factor.W: moment * feature[Factor.H][j], Factor.H: moment * feature[Factor.W][i]}
        total, size = {}, {}
        for f, index in ((Factor.W, i), (Factor.H, j)):
            total[f], size[f] = np.zeros_like(theta[f]), np.zeros_like(theta[f])
            if prior:
                offset = theta[f] - self.mean[f]
                precision = np.diag(self.precision[f]) if self.precision[f].ndim == 1 else self.precision[f]
                total[f] += offset @ precision
                size[f] += np.abs(offset) @ np.abs(precision)
            np.add.at(total[f], index, terms[f])
            np.add.at(size[f], index, np.abs(terms[f]))
        return total, size, float((weight / TAU * error**2).sum())


def parts(target: FactorTarget) -> Iterator[int]:
    """Iterate until the target has been at every part; yield each when it is first there."""
    seen: set[int] = set()
    for iteration in range(1000):
        target.begin(iteration)
        if target.circulation.part not in seen:
            seen.add(target.circulation.part)
            yield target.circulation.part
        for _ in target.visit(send=True):
            pass
        if len(seen) == target.grid:
            return
    raise AssertionError("a part is never visited")


@pytest.mark.parametrize(
    ("schedule", "biases", "heteroscedastic", "prior"),
    [
        ("shuffled", True, False, "diagonal"),
        ("cyclic", False, True, "dense"),
        ("random", True, True, "dense"),
        ("random", False, False, "without"),
    ],
)
def test_the_mean_over_parts_is_the_full_gradient(
    path: Path, schedule: ScheduleName, biases: bool, heteroscedastic: bool, prior: str
) -> None:
    """With biases and without, with noise of its own for users and items, with each kind of prior and without it.

    To 1e-5 of the sum of the terms' sizes: float32 rounds every term.
    """
    problem = Problem(3 + biases, prior == "dense", heteroscedastic)
    target = factor_target(MPI.COMM_SELF, path, 5, schedule, model(biases, heteroscedastic))
    mean = {f: np.zeros((n, target.dimension)) for f, n in problem.size.items()}
    squared_error = 0.0
    for part in parts(target):
        problem.put(target)
        target.noise.squared_error[:] = 0.0
        assert target.circulation.part_probability == target.circulation.schedule.probability[part]
        for cell in target.visit():
            cell.gradient("theta", "g", prior=prior != "without")
            for block in cell.blocks:
                rows = slice(block.start, block.start + len(block.counts))
                mean[block.factor][rows] += target.circulation.part_probability * block["g"]
        squared_error += target.circulation.part_probability * target.noise.squared_error.sum()
    full, size, expected = problem.gradient(path, biases, prior != "without")
    for f in Factor:
        assert np.abs(full[f]).max() > 1
        assert (np.abs(mean[f] - full[f]) <= 1e-5 * size[f]).all()
    # over a sweep each part's errors count 1 / (B p_t), so that their sum estimates that over all ratings
    assert squared_error * target.grid == pytest.approx(expected, rel=1e-5)


def test_errors_count_for_the_sweep_in_which_they_were_made(path: Path) -> None:
    """Begun anew with every sweep, not with every iteration, of all ratings and of every row; or not at all."""
    target = factor_target(MPI.COMM_SELF, path, 5, "cyclic", model(True, True))
    Problem(4, False, True).put(target)
    totals = []
    for iteration in range(10):
        target.begin(iteration)
        for cell in target.visit(send=True):
            cell.gradient("theta", "g", errors=iteration != 7)
        rows = sum(float((block["weight"] * block["row_error"]).sum()) for block in target.blocks() if not block.factor)
        totals.append(float(target.noise.squared_error.sum()))
        assert rows == pytest.approx(totals[-1], rel=1e-5)
    assert (np.diff(totals[:5]) > 0).all()
    assert totals[5:7] == totals[:2]
    assert totals[7] == totals[6]
    assert totals[9] == pytest.approx(totals[4] - (totals[2] - totals[1]), rel=1e-12)
