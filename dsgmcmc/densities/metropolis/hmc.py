r"""Hamiltonian Monte Carlo in a diagonal metric [Duane 1987; Neal 2011, fig. 2], its step and metric found in burn-in.

With s^2 the inverse of the metric and v ~ N(0, 1) drawn anew in every iteration, L leapfrog steps

    v <- v - (eps / 2) s grad U(theta),    theta <- theta + eps s v,    v <- v - (eps / 2) s grad U(theta)

propose a state, which is accepted with probability min{1, exp(H - H')}, H = U + |v|^2 / 2. L eps is `length` times a
number drawn uniformly from .5 to 1.5 in every iteration, before it, so that no trajectory closes on itself and the
kernel is a mixture of reversible ones.

In burn-in eps is adapted to `acceptance` by dual averaging, and s^2, which begins as 1 /
(typical curvature + the prior's precision), becomes at its half and at three quarters the variance of the quarter
before, of n states weighed against five of the old s^2. All is frozen at its end. With a `step_size` nothing adapts.

Target: the posterior itself. Left out: a metric that is not diagonal, and trajectories whose length is found (NUTS).

[Neal 2011] R. M. Neal: MCMC using Hamiltonian dynamics, Handbook of Markov chain Monte Carlo, chapter 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from pydantic import Field

from dsgmcmc.densities.density import Density, posterior_gradient, prior_energy
from dsgmcmc.densities.metropolis.base import DualAveraging, Metropolis
from dsgmcmc.densities.metropolis.proposals import known
from dsgmcmc.densities.vector import VectorTarget
from dsgmcmc.samplers.step_size import SamplerConfig
from dsgmcmc.targets.state import Replicated
from dsgmcmc.types import Float64, Int64, Purpose

#: Leapfrog steps of a trajectory at most.
MAX_STEPS = 1000
#: States that the metric before counts for in the next.
OLD_METRIC_STATES = 5.0


class HMCConfig(SamplerConfig):
    """Configuration of Hamiltonian Monte Carlo."""

    step_size: float | None = Field(None, gt=0, allow_inf_nan=False, description="eps; default: found in burn-in")
    acceptance: float = Field(0.8, gt=0, lt=1, description="mean probability to which a step is adapted")
    length: float = Field(1.5, gt=0, allow_inf_nan=False, description="mean time of a trajectory, in the metric")


@dataclass
class DiagonalMetric(Replicated):
    """s^2 of every row, and the number, mean and squared deviations of states for the next; (n, D), the number (1,)."""

    saved_as: ClassVar[dict[str, str]] = {
        "inverse": "hmc.inverse_metric",
        "number": "hmc.number",
        "mean": "hmc.mean",
        "squares": "hmc.squares",
    }

    inverse: Float64 | None = None
    number: Float64 | None = None
    mean: Float64 | None = None
    squares: Float64 | None = None

    def begin(self, inverse: Float64) -> None:
        """Begin to sum anew, with this s^2."""
        self.inverse, self.number = inverse, np.zeros(1)
        self.mean, self.squares = np.zeros_like(inverse), np.zeros_like(inverse)

    def see(self, theta: Float64) -> None:
        """Count the states of an iteration, (n, D)."""
        assert self.number is not None
        assert self.mean is not None
        assert self.squares is not None
        self.number = self.number + 1
        offset = theta - self.mean
        self.mean = self.mean + offset / self.number
        self.squares = self.squares + offset * (theta - self.mean)

    def next(self) -> Float64:
        """Return s^2 as the states say."""
        assert self.inverse is not None
        assert self.number is not None
        assert self.squares is not None
        return (self.squares + OLD_METRIC_STATES * self.inverse) / (self.number + OLD_METRIC_STATES)


class HMC(Metropolis[HMCConfig, Density]):
    """Hamiltonian Monte Carlo."""

    Config = HMCConfig

    def __init__(self, config: HMCConfig, burn_in: int) -> None:
        super().__init__(config, burn_in)
        self.adapted, self.metric = DualAveraging(), DiagonalMetric()
        self.replicated = (*self.replicated, self.adapted, self.metric)

    @classmethod
    def default_thin(cls, config: HMCConfig, grid: int) -> int:
        """Every state: a trajectory goes far."""
        return 1

    def metrics(self) -> dict[str, float]:
        """Part of the proposals that were accepted, and evaluations of the energy of a datum a step.

        Here: with the mean step over the rows.
        """
        metrics = super().metrics()
        return metrics if self.adapted.steps is None else {**metrics, "step": float(self.adapted.eps(False).mean())}

    def step(self, target: VectorTarget[Density], iteration: int) -> None:
        """One iteration."""
        theta, density, config = target.block["theta"], target.density, self.config
        energies, counts = self.tallied(target, iteration)
        known(density, theta, energies, counts)
        if self.metric.inverse is None:
            first = config.step_size or theta.shape[1] ** -0.25
            self.adapted.begin(np.full(len(theta), first))
            self.metric.begin(np.tile(1 / target.precision, (len(theta), 1)))
        adapting = config.step_size is None and iteration < self.burn_in
        rng = target.stream.generator(Purpose.PROPOSAL)
        eps, v = self.adapted.eps(adapting), rng.standard_normal(theta.shape)
        times = config.length * (0.5 + rng.random(len(theta)))
        number = np.clip(np.ceil(times / eps), 1, MAX_STEPS).astype(np.int64)
        with np.errstate(all="ignore"):  # a trajectory that explodes is not accepted
            proposed, w = self._trajectory(density, theta, v, eps, number)
            new = density.energy(proposed)
            rise = new - energies + prior_energy(density, proposed) - prior_energy(density, theta)
            rise += 0.5 * (w**2 - v**2).sum(axis=1)
            chance = np.exp(-np.maximum(rise, 0))
        accepted = rise <= rng.standard_exponential(len(theta))
        theta[accepted], energies[accepted] = proposed[accepted], new[accepted]
        evaluations = density.n_data * (number + 2.0)
        counts += np.column_stack([accepted, evaluations, np.ones((len(theta), 2))])
        if adapting:
            self.adapted.see(np.where(np.isnan(chance), 0.0, chance), config.acceptance)
            self._adapt_metric(theta, iteration + 1)

    def _trajectory(
        self, density: Density, start: Float64, v: Float64, eps: Float64, number: Int64
    ) -> tuple[Float64, Float64]:
        """Where leapfrog steps of the rows lead, each as many as it has."""
        assert self.metric.inverse is not None
        theta, v, root = start.copy(), v.copy(), eps[:, None] * np.sqrt(self.metric.inverse)
        slope = posterior_gradient(density, theta)
        for made in range(int(number.max())):
            on = np.flatnonzero(number > made)
            v[on] -= 0.5 * root[on] * slope[on]
            theta[on] += root[on] * v[on]
            slope[on] = posterior_gradient(density, theta[on])
            v[on] -= 0.5 * root[on] * slope[on]
        return theta, v

    def _adapt_metric(self, theta: Float64, made: int) -> None:
        """Count a state of burn-in, and take a new metric where a quarter ends; the step is then sought anew."""
        quarter = self.burn_in // 4
        if made <= quarter or made > 3 * quarter:
            return
        self.metric.see(theta)
        if made in (2 * quarter, 3 * quarter):
            assert self.metric.inverse is not None
            before = self.metric.inverse
            self.metric.begin(self.metric.next())
            stretch = np.sqrt((before / self.metric.inverse).min(axis=1))
            self.adapted.begin(self.adapted.eps(False) * np.minimum(stretch, 1.0))
