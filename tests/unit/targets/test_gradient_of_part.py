"""The stochastic gradient of a part: its mean over the parts, weighted by how often each is visited, is the gradient.

The full gradient is written here from the model's definition, in float64, from the ratings file itself.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from support import factor_world, write_planted

from dsgmcmc.data.ratings import open_ratings
from dsgmcmc.targets.factorisation.target import FactorWorld
from dsgmcmc.types import ScheduleName

ROWS, COLUMNS = 61, 37
TAU = 2.5
Arrays = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_planted(tmp_path_factory.mktemp("data") / "r.h5", ROWS, COLUMNS, share=0.6)


class Problem:
    """A random state, prior and weights, whole and in float64."""

    def __init__(self, dimension: int, dense: bool, weighted: bool) -> None:
        rng = np.random.default_rng(7)
        self.size = {"W": ROWS, "H": COLUMNS}
        self.theta = {f: rng.normal(0, 1, (n, dimension)).astype(np.float32) for f, n in self.size.items()}
        self.mean = {f: rng.normal(0, 1, dimension) for f in "WH"}
        self.precision = {f: rng.gamma(2, 1, dimension) for f in "WH"}
        if dense:
            roots = {f: rng.normal(0, 1, (dimension, dimension)) for f in "WH"}
            self.precision = {f: root @ root.T + np.eye(dimension) for f, root in roots.items()}
        draw = (lambda n: rng.gamma(3, 1 / 3, n).astype(np.float32)) if weighted else np.ones
        self.g = {f: draw(n) for f, n in self.size.items()}

    def put(self, world: FactorWorld) -> None:
        """Set a world to this state."""
        world.state = {"tau": np.array([TAU])}
        for f in "WH":
            world.state |= {f"{f}.mean": self.mean[f][None], f"{f}.precision": self.precision[f][None]}
        self.refresh(world)

    def refresh(self, world: FactorWorld) -> None:
        for side in world.sides():
            rows = slice(side.start, side.start + len(side.counts))
            side["theta"][:] = self.theta[side.factor][rows]
            if world.likelihood.weighted:
                side["weight"][:, 0] = self.g[side.factor][rows]

    def gradient(self, path: Path, biases: bool, prior: bool) -> tuple[Arrays, Arrays, float]:
        """Gradient of the energy of W and H, the sizes of its terms added up, and the weighted squared errors."""
        with open_ratings(path) as ratings:
            indptr, j, x = ratings.slab("train", 0, ROWS)
            centred = x.astype(np.float64) - ratings.mean
        i = np.repeat(np.arange(ROWS), np.diff(indptr))
        theta = {f: value.astype(np.float64) for f, value in self.theta.items()}
        feature = {f: value.copy() for f, value in theta.items()}
        error = centred.copy()
        if biases:
            error -= theta["W"][i, -1] + theta["H"][j, -1]
            feature["W"][:, -1] = feature["H"][:, -1] = 1.0
        k = slice(None, -1) if biases else slice(None)
        error -= (theta["W"][i, k] * theta["H"][j, k]).sum(axis=1)
        weight = TAU * self.g["W"][i] * self.g["H"][j]
        terms = {"W": -(weight * error)[:, None] * feature["H"][j], "H": -(weight * error)[:, None] * feature["W"][i]}
        total, size = {}, {}
        for f, index in (("W", i), ("H", j)):
            total[f], size[f] = np.zeros_like(theta[f]), np.zeros_like(theta[f])
            if prior:
                offset = theta[f] - self.mean[f]
                precision = np.diag(self.precision[f]) if self.precision[f].ndim == 1 else self.precision[f]
                total[f] += offset @ precision
                size[f] += np.abs(offset) @ np.abs(precision)
            np.add.at(total[f], index, terms[f])
            np.add.at(size[f], index, np.abs(terms[f]))
        return total, size, float((weight / TAU * error**2).sum())


def iterations_of(world: FactorWorld) -> dict[int, int]:
    """An iteration that visits each part."""
    found: dict[int, int] = {}
    for iteration in range(1000):
        found.setdefault(world.schedule.part(iteration), iteration)
        if len(found) == world.grid:
            return found
    raise AssertionError("a part is never visited")


def check(mean: dict[str, np.ndarray], full: dict[str, np.ndarray], size: dict[str, np.ndarray]) -> None:
    """To 1e-5 of the sum of the terms' sizes: float32 rounds every term."""
    for f in "WH":
        assert np.abs(full[f]).max() > 1
        assert (np.abs(mean[f] - full[f]) <= 1e-5 * size[f]).all()


@pytest.mark.parametrize("prior", ["diagonal", "dense", "without"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize("schedule", ["shuffled", "cyclic", "random"])
def test_the_mean_over_parts_is_the_full_gradient(
    path: Path, schedule: ScheduleName, biases: bool, weighted: bool, prior: str
) -> None:
    """With biases and without, with noise of its own for users and items, with each kind of prior and without it."""
    problem = Problem(3 + biases, prior == "dense", weighted)
    world = factor_world(MPI.COMM_SELF, path, 5, schedule, rank=3, biases=biases, weighted=weighted)
    mean = {f: np.zeros((n, world.dimension)) for f, n in problem.size.items()}
    squared_error = 0.0
    for part, iteration in iterations_of(world).items():
        world.place(iteration)
        problem.put(world)
        world.squared_error[:] = 0.0
        assert world.part == part
        for block in world.visit():
            block.gradient("theta", "g", prior=prior != "without")
            for side in block.sides:
                rows = slice(side.start, side.start + len(side.counts))
                mean[side.factor][rows] += world.part_probability * side["g"]
        squared_error += world.part_probability * world.squared_error.sum()
    full, size, expected = problem.gradient(path, biases, prior != "without")
    check(mean, full, size)
    # over a sweep each part's errors count 1 / (B p_t), so that their sum estimates that over all ratings
    assert squared_error * world.grid == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("biases", [True, False])
def test_a_sweep_takes_the_full_gradient(path: Path, biases: bool, weighted: bool) -> None:
    """At noise precision 1 and without the prior, as samplers of the full gradient expect it."""
    problem = Problem(3 + biases, False, weighted)
    world = factor_world(MPI.COMM_SELF, path, 5, "home", rank=3, biases=biases, weighted=weighted)
    problem.put(world)
    world.sweep("theta", "g")
    found = {f: np.concatenate([side["g"] for side in world.sides() if side.factor == f]) for f in "WH"}
    full, size, expected = problem.gradient(path, biases, prior=False)
    check({f: TAU * value for f, value in found.items()}, full, size)
    assert world.squared_error.sum() == pytest.approx(expected, rel=1e-5)


def test_frozen_factors_are_not_offered_for_update(path: Path) -> None:
    """With H held fixed a sampler moves W alone, by the same gradient."""
    problem = Problem(4, False, False)
    found = []
    for frozen in (frozenset(), frozenset({"H"})):
        world = factor_world(MPI.COMM_SELF, path, 5, "cyclic", rank=3, frozen=frozen)
        problem.put(world)
        gradient = {}
        for block in world.visit():
            block.gradient("theta", "g")
            assert [side.factor for side in block.sides] == (["W"] if frozen else ["W", "H"])
            gradient[block.row.index] = block.row["g"].copy()
        found.append(gradient)
    assert all((found[0][b] == found[1][b]).all() for b in range(5))


def test_peak_count_bounds_the_count_of_any_row_or_column_in_a_part(path: Path) -> None:
    """The unit of SGLD's step: the most ratings of one row or column in a part, divided by the part's probability."""
    for schedule in ("shuffled", "random"):
        world = factor_world(MPI.COMM_SELF, path, 5, schedule)
        peak = 0.0
        for (b, c), block in world.ratings.train.items():
            counts = [np.diff(block.indptr).max(), np.bincount(block.indices, minlength=1).max()]
            peak = max(peak, max(counts) / world.schedule.probability[(c - b) % 5])
        assert world.peak_count == pytest.approx(peak, rel=1e-12)
