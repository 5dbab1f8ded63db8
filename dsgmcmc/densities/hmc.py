r"""Hamiltonian Monte Carlo [Duane 1987; Neal 2011, fig. 2], with step and diagonal metric adapted in burn-in.

Let s^2 be the inverse of the metric. Every iteration draws v ~ N(0, 1), and L leapfrog steps

    v <- v - (eps / 2) s grad U(theta),    theta <- theta + eps s v,    v <- v - (eps / 2) s grad U(theta)

propose a state, which is accepted with probability min{1, exp(H - H')}, H = U + |v|^2 / 2. Before each iteration L eps
is set to `length` times a number drawn uniformly from 0.5 to 1.5. Trajectories therefore do not stay periodic, and the
kernel is a mixture of reversible kernels.

In burn-in, dual averaging adapts eps to the setting `acceptance`. s^2 starts as 1 / (typical curvature + the prior's
precision). At half and at three quarters of burn-in it becomes a weighted mean: the variance of the n states in the
preceding quarter, with weight n, and the old s^2, with weight 5. After burn-in eps and s^2 are fixed. If a `step_size`
is given, nothing is adapted.

Target: the posterior itself. Left out: dense metrics, and automatic lengths of trajectories (NUTS).

[Neal 2011] R. M. Neal: MCMC using Hamiltonian dynamics, Handbook of Markov chain Monte Carlo, chapter 5.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from dsgmcmc.densities.density import Density, posterior_gradient, prior_energy
from dsgmcmc.densities.metropolis import DualAveraging, Metropolis
from dsgmcmc.densities.vector import VectorTarget
from dsgmcmc.samplers.step_size import SamplerConfig
from dsgmcmc.types import Float64, Int64, Purpose

#: Maximum number of leapfrog steps in a trajectory.
MAX_STEPS = 1000
#: Weight of the old s^2, as a number of states.
OLD_METRIC_STATES = 5.0


class HMCConfig(SamplerConfig):
    """Configuration of Hamiltonian Monte Carlo."""

    step_size: float | None = Field(None, gt=0, allow_inf_nan=False, description="eps; default: adapted in burn-in")
    acceptance: float = Field(0.8, gt=0, lt=1, description="mean acceptance probability to which the step is adapted")
    length: float = Field(1.5, gt=0, allow_inf_nan=False, description="mean time of a trajectory, in the metric")


class HMC(Metropolis[HMCConfig, Density]):
    """Hamiltonian Monte Carlo."""

    Config = HMCConfig

    def __init__(self, config: HMCConfig, burn_in: int) -> None:
        super().__init__(config, burn_in)
        self.adapted: DualAveraging | None = None
        self._inverse: Float64 = np.zeros((0, 0))  # s^2 of every row
        self._states: list[Float64] = []  # theta after each iteration of the present quarter of burn-in

    @classmethod
    def default_thin(cls, config: HMCConfig, grid: int) -> int:
        """Return 1: successive states are far apart."""
        return 1

    def metrics(self) -> dict[str, float]:
        """Return acceptance rate, evaluations of the energy of a datum per iteration, and mean step over the rows."""
        metrics = super().metrics()
        return metrics if self.adapted is None else {**metrics, "step": float(self.adapted.eps(False).mean())}

    def step(self, target: VectorTarget[Density], iteration: int) -> None:
        """Run one iteration."""
        theta, density = target.block["theta"], target.density
        config = self.config
        self.begin_counts(target, iteration)
        self.fill_energies(density, theta)
        if self.adapted is None:
            self.adapted = DualAveraging(np.full(len(theta), config.step_size or theta.shape[1] ** -0.25))
            self._inverse = np.tile(1 / target.precision, (len(theta), 1))
        adapting = config.step_size is None and iteration < self.burn_in
        rng = target.stream.generator(Purpose.PROPOSAL)
        eps, v = self.adapted.eps(adapting), rng.standard_normal(theta.shape)
        times = config.length * (0.5 + rng.random(len(theta)))
        n_steps = np.clip(np.ceil(times / eps), 1, MAX_STEPS).astype(np.int64)
        with np.errstate(all="ignore"):  # a diverging trajectory is rejected
            proposed, w = self._trajectory(density, theta, v, eps, n_steps)
            new = density.energy(proposed)
            rise = new - self.energies + prior_energy(density, proposed) - prior_energy(density, theta)
            rise += 0.5 * (w**2 - v**2).sum(axis=1)
            probability = np.exp(-np.maximum(rise, 0))
        accepted = rise <= rng.standard_exponential(len(theta))
        theta[accepted], self.energies[accepted] = proposed[accepted], new[accepted]
        evaluations = density.n_data * (n_steps + 2.0)
        self.counts += np.column_stack([accepted, evaluations, np.ones((len(theta), 2))])
        if adapting:
            self.adapted.adapt(probability, config.acceptance)
            self.adapted = self._adapt_metric(theta, iteration + 1, self.adapted)

    def _adapt_metric(self, theta: Float64, iterations: int, adapted: DualAveraging) -> DualAveraging:
        """Store the state; at half and three quarters of burn-in compute a new metric, and restart the adaptation."""
        quarter = self.burn_in // 4
        if iterations <= quarter or iterations > 3 * quarter:
            return adapted
        self._states.append(theta.copy())
        if iterations not in (2 * quarter, 3 * quarter):
            return adapted
        n, old = len(self._states), self._inverse
        self._inverse = (n * np.var(self._states, axis=0) + OLD_METRIC_STATES * old) / (n + OLD_METRIC_STATES)
        self._states = []
        stretch = np.sqrt((old / self._inverse).min(axis=1))
        return DualAveraging(adapted.eps(False) * np.minimum(stretch, 1.0))

    def _trajectory(
        self, density: Density, start: Float64, v: Float64, eps: Float64, n_steps: Int64
    ) -> tuple[Float64, Float64]:
        """Make `n_steps` leapfrog steps, (n,), from every row, and return the final theta and v."""
        theta, v = start.copy(), v.copy()
        root = eps[:, None] * np.sqrt(self._inverse)
        slope = posterior_gradient(density, theta)
        for step in range(int(n_steps.max())):
            moving = np.flatnonzero(n_steps > step)
            v[moving] -= 0.5 * root[moving] * slope[moving]
            theta[moving] += root[moving] * v[moving]
            slope[moving] = posterior_gradient(density, theta[moving])
            v[moving] -= 0.5 * root[moving] * slope[moving]
        return theta, v
