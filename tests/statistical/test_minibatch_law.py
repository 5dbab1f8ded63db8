"""Samplers on vectors whose gradients have noise that differs by direction and is correlated within a row."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import pytest

from dsgmcmc.densities.density import ALL, Data, prior_gradient
from dsgmcmc.densities.regression import Regression
from dsgmcmc.densities.sample import DensityConfig, sample, vector_target
from dsgmcmc.samplers import sampler_named
from dsgmcmc.samplers.base import Sampler

pytestmark = pytest.mark.statistical

UNEQUAL, CORRELATED = np.diag([0.0, 16.0]), np.array([[16.0, 9.0], [9.0, 8.0]])


class Noisy:
    """N(0, I), whose gradient has noise of the covariance `noise`, of every row its own."""

    n_data = 1

    def __init__(self, noise: np.ndarray) -> None:
        self.dimension = len(noise)
        values, axes = np.linalg.eigh(noise)
        self.root, self.rng = axes * np.sqrt(np.maximum(values, 0)), np.random.default_rng(0)
        self.curvature = np.ones(self.dimension)
        self.prior_mean, self.prior_precision = np.zeros(self.dimension), np.zeros(self.dimension)

    def gradient(self, theta: np.ndarray, data: Data = ALL) -> np.ndarray:
        """With its noise."""
        return theta + self.rng.standard_normal(theta.shape) @ self.root.T


def covariance(name: str, density: Any, iterations: int, rows: int = 400, sd: float = 1.0, **section: Any) -> Any:
    """Of theta over all rows and every 20th of the last three quarters of the iterations, and its mean."""
    kind = sampler_named(name)
    assert kind is not None
    sampler: Sampler[Any, Any] = kind(kind.Config(**section), 0)
    grid = 10 if density.n_data > 1 else 1
    target = vector_target(density, sampler, rows=rows, grid=grid, schedule="random")
    states = [theta.copy() for theta in sample(target, sampler, iterations, sd=sd)][iterations // 4 :: 20]
    return np.cov(np.concatenate(states).T), np.mean(states, axis=(0, 1))


# ---------------------------------------------------------------------- noise that is known


def test_a_thermostat_a_row_serves_equal_directions_alone() -> None:
    """Others settle towards (A + h V_k / 2) / xi, xi = A + h mean(V) / 2: an error of O(h), a quarter at h = .1."""
    found, _ = covariance("sgnht", Noisy(UNEQUAL), 6000, step_size=0.005, diffusion=1.0, warm_up=0)
    np.testing.assert_allclose(np.diag(found), [0.76, 1.25], atol=0.02)
    found, _ = covariance("sgnht", Noisy(8 * np.eye(2)), 6000, step_size=0.005, diffusion=1.0, warm_up=0)
    np.testing.assert_allclose(found, np.eye(2), atol=0.02)


def test_a_thermostat_an_element_serves_uncorrelated_directions_alone() -> None:
    """With correlated noise theta is correlated, which the target is not."""
    section = {"step_size": 0.005, "diffusion": 1.0, "warm_up": 0, "thermostat": "element"}
    found, _ = covariance("sgnht", Noisy(UNEQUAL), 6000, **section)
    np.testing.assert_allclose(found, np.eye(2), atol=0.02)
    found, _ = covariance("sgnht", Noisy(CORRELATED), 6000, **section)
    assert found[0, 1] == pytest.approx(0.24, abs=0.02)


def langevin(eps: float, noise: np.ndarray) -> np.ndarray:
    """Variance of Langevin dynamics on N(0, 1) with gradient noise of these variances."""
    return (1 + 0.5 * eps * noise) / (1 - 0.5 * eps)


def hamiltonian(eps: float, gamma: float, noise: np.ndarray) -> np.ndarray:
    """That of SGHMC with the splitting BAOA (`dsgmcmc.samplers.sgmcmc.sghmc`)."""
    c = np.exp(-gamma * sqrt(2 * eps))
    return 1 + 2 * eps * noise * (1 + c) / ((1 - c) * (4 - 2 * eps))


def published(eps: float, gamma: float, noise: np.ndarray) -> np.ndarray:
    """That of SGHMC as published."""
    square = 2 * eps
    a = gamma * sqrt(square)
    return (2 * a + square * noise) * (2 - a) / (a * (4 - 2 * a - square))


@pytest.mark.parametrize(
    ("name", "section", "law"),
    [
        ("sgld", {"step_size": 0.1}, lambda v: langevin(0.1, v)),
        ("sgrld", {"step_size": 0.1, "warm_up": 0}, lambda v: langevin(0.1, v)),
        ("sghmc", {"step_size": 0.02, "gamma": 3.0, "warm_up": 0}, lambda v: hamiltonian(0.02, 3.0, v)),
        (
            "sghmc",
            {"step_size": 0.02, "gamma": 3.0, "splitting": "published", "warm_up": 0},
            lambda v: published(0.02, 3.0, v),
        ),
    ],
    ids=["sgld", "sgrld", "sghmc", "sghmc-published"],
)
def test_the_excess_is_that_of_the_documents(name: str, section: dict[str, Any], law: Any) -> None:
    """In the axes of the noise the variances are the formulas' at its eigenvalues; so the whole covariance, to 2 %."""
    values, axes = np.linalg.eigh(CORRELATED)
    expected = axes * law(values) @ axes.T
    found, _ = covariance(name, Noisy(CORRELATED), 3000, 1000, **section)
    assert abs(expected - np.eye(2)).max() > 0.3
    np.testing.assert_allclose(found, expected, atol=0.02 * expected.max())


# ---------------------------------------------------------------------- parts of data


@pytest.fixture(scope="module")
def regression() -> tuple[Regression, np.ndarray, np.ndarray]:
    """Logistic, 1,000 data with correlated features, its mean and covariance by quadrature."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1000, 2)) @ [[1.0, 0.6], [0.0, 0.8]]
    density = Regression(x, rng.random(1000) < 1 / (1 + np.exp(-x @ [1.0, -0.5])))
    mode = np.zeros(2)
    for _ in range(20):
        gradient = density.gradient(mode[None]) + prior_gradient(density, mode[None])
        mode -= np.linalg.solve(density.hessian(mode), gradient[0])
    axes = [np.linspace(each - 0.6, each + 0.6, 121) for each in mode]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    energy = np.concatenate([density.energy(part) + density.prior_energy(part) for part in np.array_split(points, 30)])
    weight = np.exp(energy.min() - energy)
    weight /= weight.sum()
    mean = weight @ points
    return density, mean, (points - mean).T @ ((points - mean) * weight[:, None])


def whitened(found: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """A covariance in coordinates in which the true one is I."""
    root = np.linalg.inv(np.linalg.cholesky(truth))
    return root @ found @ root.T


@pytest.mark.parametrize(
    ("name", "schedule"),
    [("sgld", "random"), ("sgrld", "shuffled"), ("sghmc", "shuffled")],
)
def test_default_steps_keep_the_spread_with_parts(name: str, schedule: str, regression: Any) -> None:
    """Standard deviations are right within 5 % with ten parts and nothing set; chance has 1 %.

    Each sampler has one of the schedules: what these leave of a law, ``test_schedules_law.py`` says.
    """
    density, _, truth = regression
    section = DensityConfig.build({"sampler": {"name": name}, "grid": 10, "schedule": schedule}).resolved().sampler
    sampler = section.kind(section.config, 0)
    target = vector_target(density, sampler, rows=200, grid=10, schedule=schedule)
    states = [theta.copy() for theta in sample(target, sampler, 4000, sd=0.1)][1500::25]
    found = whitened(np.cov(np.concatenate(states).T), truth)
    assert abs(np.sqrt(np.linalg.eigvalsh(found)) - 1).max() < 0.05


def test_rows_have_noise_of_their_own() -> None:
    """The variance across rows is that over time and rows, to 3 %: with parts in common it was a fifth of it."""

    class Location(Noisy):
        """The mean of 200 data, N(theta, 1)."""

        n_data = 200

        def __init__(self) -> None:
            super().__init__(np.zeros((1, 1)))
            self.y, self.curvature = np.random.default_rng(1).normal(size=200), np.array([200.0])

        def gradient(self, theta: np.ndarray, data: Data = ALL) -> np.ndarray:
            """Of a part."""
            return len(self.y[data]) * theta - self.y[data].sum()

    kind = sampler_named("sgld")
    assert kind is not None
    sampler = kind(kind.Config(step_size=0.5), 0)
    target = vector_target(Location(), sampler, rows=400, grid=20, schedule="random")
    states = np.array([theta[:, 0].copy() for theta in sample(target, sampler, 2000, sd=0.1)])[200::10]
    assert states.var(axis=1).mean() == pytest.approx(states.var(), rel=0.03)
