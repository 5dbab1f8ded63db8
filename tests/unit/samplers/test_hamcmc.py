"""HAMCMC's arithmetic: against dense matrices, on vectors and on blocks; what it refuses, counts
and averages.
"""

from collections.abc import Callable, Iterator
from math import gcd
from pathlib import Path

import numpy as np
import pytest
from hamcmc import DenseHAMCMC
from mpi4py import MPI
from support import Model, factor_target, normals_of

from dsgmcmc.densities.density import ALL, Data
from dsgmcmc.densities.sample import sample as sample_vector
from dsgmcmc.densities.sample import vector_target
from dsgmcmc.densities.vector import VectorTarget
from dsgmcmc.parallel.partition import column_of
from dsgmcmc.samplers.hamcmc import HAMCMC, HAMCMCConfig
from dsgmcmc.types import Factor, Purpose

D = 4
N = 50
SEED = 3
PARTS = 4
CURVATURE = 5.0
Gradient = Callable[[np.ndarray, int], np.ndarray]


class Minibatches:
    """A correlated Gaussian of which every datum has another mean and curvature, or a double well
    along every axis.
    """

    def __init__(self, wells: bool = False) -> None:
        rng = np.random.default_rng(0)
        a = rng.standard_normal((D, 2 * D))
        self.precision = a @ a.T / 4 + np.eye(D)
        self.wells = wells
        self.dimension = D
        self.n_data = N
        self.curvature = np.full(D, CURVATURE)
        self.prior_mean = np.full(D, 0.1)
        self.prior_precision = np.full(D, 0.2)
        self.means = rng.normal(0, 0.7, (N, D))
        self.scales = rng.uniform(0.3, 1.7, N)
        #: If set, the gradient of the likelihood whatever the state.
        self.forced: np.ndarray | None = None

    def gradient(self, theta: np.ndarray, data: Data = ALL) -> np.ndarray:
        """Gradient of the energy of some data; of a part of them, if it is forced."""
        if self.forced is not None:
            return np.broadcast_to(self.forced / PARTS, theta.shape)
        means = self.means[data]
        scales = self.scales[data]
        if self.wells:
            return 1.1 * CURVATURE * (theta**3 / 9 - theta) * len(scales) / N
        return (theta * scales.sum() - scales @ means) @ self.precision / N


def path_of(sampler: HAMCMC, wells: bool = False) -> tuple[VectorTarget, Gradient]:
    """Target of four parts, and the stochastic gradient of its energy, prior included, for the
    reference.
    """
    density = Minibatches(wells)
    target = vector_target(density, sampler, seed=SEED, grid=PARTS)

    def gradient(theta: np.ndarray, iteration: int) -> np.ndarray:
        data = np.arange(target.schedule.part(iteration), N, PARTS)
        likelihood = PARTS * density.gradient(theta, data)
        return likelihood + density.prior_precision * (theta - density.prior_mean)

    return target, gradient


def noise(n: int, iteration: int, factor: int = 0) -> np.ndarray:
    key = {"seed": SEED, "purpose": Purpose.STEP, "iteration": iteration, "factor": factor}
    return normals_of(n, **key).astype(np.float64)


# ---------------------------------------------------------------------- the whole path, on a vector


def compare(
    sampler: HAMCMC,
    target: VectorTarget,
    reference: DenseHAMCMC,
    *,
    iterations: int = 60,
    precision: float = 1e-9,
) -> Iterator[int]:
    """Compare every state with that of an independent program, and yield the iteration."""
    sampler.start(target, 1.0)
    start = target.block[sampler.positions[-1]].copy()
    expected = reference.run(start, lambda t: noise(D, t)[None], iterations)
    for theta, dense in zip(sample_vector(target, sampler, iterations), expected, strict=True):
        np.testing.assert_allclose(theta, dense, rtol=precision, atol=precision)
        yield target.stream.iteration


@pytest.mark.parametrize(
    ("memory", "gamma", "trust"), [(2, 0.5, 0.3), (3, None, 1.0), (5, 0.5, 0.3)]
)
def test_the_path_is_that_of_dense_matrices(memory: int, gamma: float | None, trust: float) -> None:
    """Pairs, ages, slots, minibatches, first steps and defaults."""
    sampler = HAMCMC(HAMCMCConfig(memory=memory, step_size=0.3, gamma=gamma, trust=trust), 0)
    target, gradient = path_of(sampler)
    h0 = gamma or 1 / CURVATURE
    reference = DenseHAMCMC(
        gradient, memory, 0.3 / CURVATURE / h0, trust, lambda t, g: np.full(D, h0)
    )
    assert len(list(compare(sampler, target, reference))) == 60
    assert sampler.metrics()["skipped_pairs"] == 0


@pytest.mark.parametrize(("memory", "burn_in"), [(2, 30), (3, 30), (3, 0)])
def test_the_path_in_the_diagonal_metric(memory: int, burn_in: int) -> None:
    """While v follows the gradients, all products are taken anew; after burn-in v and its metric
    stay.
    """
    sampler = HAMCMC(
        HAMCMCConfig(
            memory=memory, metric="diagonal", alpha=0.8, step_size=0.2, trust=0.5, lambda_n=3.0
        ),
        burn_in,
    )
    target, gradient = path_of(sampler)
    v = np.zeros(D)

    def h0(t: int, g: np.ndarray) -> np.ndarray:
        squares = (g[0] / N) ** 2
        if t < burn_in or t == 0:
            v[:] = 0.8 * v + 0.2 * squares if t else squares
        return 1 / N / (3.0 / N + np.sqrt(v))

    for iteration in compare(sampler, target, DenseHAMCMC(gradient, memory, 0.2, 0.5, h0)):
        np.testing.assert_allclose(target.block["v"][0], v, rtol=1e-12)
        assert iteration < 2 or v.all()


@pytest.mark.parametrize("burn_in", [0, 30])
def test_the_path_in_the_fisher_metric(burn_in: int) -> None:
    """H^0 = 1 / P, with the curvature that the density gives: l is 1, as a vector has no other
    factor.
    """
    sampler = HAMCMC(HAMCMCConfig(memory=3, metric="fisher", step_size=0.2, trust=0.5), burn_in)
    target, gradient = path_of(sampler)
    reference = DenseHAMCMC(gradient, 3, 0.2, 0.5, lambda t, g: np.full(D, 1 / (CURVATURE + 0.2)))
    assert len(list(compare(sampler, target, reference))) == 60


def test_pairs_without_curvature_are_left_out_and_counted() -> None:
    """Between two wells the curvature is negative: such pairs would make H indefinite; users see
    how many.
    """
    sampler = HAMCMC(HAMCMCConfig(memory=3, step_size=0.1), 0)
    target, gradient = path_of(sampler, wells=True)
    reference = DenseHAMCMC(gradient, 3, 0.1, 1.0, lambda t, g: np.full(D, 1 / CURVATURE))
    ratios = []
    for iteration in compare(sampler, target, reference, iterations=150, precision=1e-8):
        if iteration > 4:
            ratios += (sampler.products.sy.diagonal() / sampler.products.sbs.diagonal()).tolist()
    assert any(0 < ratio < 0.1 for ratio in ratios), "the bound itself is not tried"
    assert 0 < reference.skipped[0] < 140
    assert sampler.metrics()["skipped_pairs"] == reference.skipped[0]


# --------------------------------------------------------------------- on blocks of a factorisation


def test_blocks_move_as_one_vector(data: Path) -> None:
    """One metric for all of W and H, from sums over blocks: the dense path of the flattened
    factors, in float32.
    """
    memory = 3
    sampler = HAMCMC(HAMCMCConfig(memory=memory, step_size=0.2), 0)
    model = Model(2, True, "fixed", 1.0, 2.0)
    target = factor_target(MPI.COMM_SELF, data, model=model, sampler=sampler, seed=SEED)
    sampler.start(target, 0.5)
    rows, columns = target.ratings.shape
    d = target.dimension

    def flat(name: str) -> np.ndarray:
        blocks = sorted(target.blocks(), key=lambda block: (block.factor, block.index))
        return np.concatenate([block[name].ravel() for block in blocks]).astype(np.float64)[None]

    squared_errors: list[float] = []

    def gradient(theta: np.ndarray, iteration: int) -> np.ndarray:
        w = theta[0, : rows * d].reshape(rows, d)
        h = theta[0, rows * d :].reshape(columns, d)
        gw = np.zeros_like(w)
        gh = np.zeros_like(h)
        part = target.circulation.schedule.part(iteration)
        squared_errors.append(0.0)
        for b in target.ring.blocks:
            c = column_of(b, part, target.grid)
            cell = target.ratings.train[b, c]
            local = np.repeat(np.arange(len(cell.indptr) - 1), np.diff(cell.indptr))
            i = target.ratings.row_bounds[b] + local
            j = target.ratings.column_bounds[c] + cell.indices
            e = cell.values - (w[i, :2] * h[j, :2]).sum(axis=1) - w[i, 2] - h[j, 2]
            squared_errors[-1] += e @ e
            one = np.ones((len(i), 1))
            np.add.at(gw, i, -2.0 * target.grid * e[:, None] * np.hstack([h[j, :2], one]))
            np.add.at(gh, j, -2.0 * target.grid * e[:, None] * np.hstack([w[i, :2], one]))
        return np.concatenate([gw.ravel(), gh.ravel()])[None] + theta

    def z(iteration: int) -> np.ndarray:
        return np.concatenate(
            [noise(rows * d, iteration, Factor.W), noise(columns * d, iteration, Factor.H)]
        )[None]

    size = (rows + columns) * d
    reference = DenseHAMCMC(
        gradient, memory, 0.2, 1.0, lambda t, g: np.full(size, 1 / target.curvature_bound)
    )
    for iteration, dense in enumerate(reference.run(flat(sampler.positions[-1]), z, 40)):
        target.begin(iteration)
        sampler.step(target, iteration)
        np.testing.assert_allclose(flat(sampler.position(iteration)), dense, rtol=0, atol=2e-4)
    # tau is drawn from the errors of a sweep's drift gradients; those of the pairs' second ones do
    # not count
    assert target.noise.squared_error.sum() == pytest.approx(
        sum(squared_errors[::2][-target.grid :]), rel=1e-4
    )


# ---------------------------------------------------------------------- sub-chains


@pytest.mark.parametrize("grid", [1, 2, 4, 6, 15, 30])
def test_the_default_thinning_visits_all_sub_chains(grid: int) -> None:
    """And is about two sweeps."""
    for memory in range(2, 11):
        thin = HAMCMC.default_thin(HAMCMCConfig(memory=memory), grid)
        assert gcd(thin, memory) == 1
        assert 2 * grid <= thin <= 2 * grid + 10
