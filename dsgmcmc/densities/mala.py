r"""The Metropolis-adjusted Langevin algorithm [Roberts & Tweedie 1996, section 1.4.1].

With D = 1 / (typical curvature + the prior's precision) for each element,

    theta' = theta - eps D grad U(theta) + N(0, 2 eps D)

is accepted with probability min{1, exp(U(theta) - U(theta') + (|r|^2 - |r'|^2) / (4 eps))}, where
r = D^(-1/2) (theta' - theta + eps D grad U(theta)), and r' is r with theta and theta' exchanged.

Target: the posterior itself. Left out: nothing; an iteration computes energy and gradient of all
data once.

[Roberts & Tweedie 1996] G. O. Roberts, R. L. Tweedie. Exponential convergence of Langevin
distributions and their discrete approximations. Bernoulli 2(4), 1996
"""

from __future__ import annotations

import numpy as np
from pydantic import Field
from typing_extensions import override

from dsgmcmc.densities.density import Density, posterior_gradient, prior_energy
from dsgmcmc.densities.metropolis import DualAveraging, Metropolis
from dsgmcmc.densities.vector import VectorTarget
from dsgmcmc.samplers.step_size import SamplerConfig
from dsgmcmc.targets.state import Attributes
from dsgmcmc.types import Float64, Purpose

#: Initial step of the adaptation.
START_STEP = 0.3


class MALAConfig(SamplerConfig):
    """Configuration of MALA."""

    step_size: float | None = Field(
        None, gt=0, description="eps; default: adapted in burn-in, from 0.3 on"
    )
    acceptance: float = Field(
        0.574, gt=0, lt=1, description="mean acceptance probability to which the step is adapted"
    )


class MALA(Metropolis[MALAConfig, Density]):
    """The Metropolis-adjusted Langevin algorithm.

    If no step is given, dual averaging adapts it in burn-in to an acceptance rate of 0.574, the
    optimum in many dimensions [Roberts & Rosenthal 1998]; after burn-in it is fixed.

    [Roberts & Rosenthal 1998] G. O. Roberts, J. S. Rosenthal. Optimal scaling of discrete
    approximations to Langevin diffusions. Journal of the Royal Statistical Society B 60(1), 1998
    """

    Config = MALAConfig

    def __init__(self, config: MALAConfig, burn_in: int) -> None:
        super().__init__(config, burn_in)
        self._gradient: Float64 | None = None
        self.replicated += (Attributes(self, "_gradient"),)

    @override
    def step(self, target: VectorTarget[Density], iteration: int) -> None:
        theta = target.block["theta"]
        density = target.density
        if self.adapted is None:
            self.adapted = DualAveraging(np.full(len(theta), self.config.step_size or START_STEP))
        adapting = self.config.step_size is None and iteration < self.burn_in
        eps = self.adapted.eps(adapting)[:, None]
        self.begin_counts(target, iteration)
        self.fill_energies(density, theta)
        if self._gradient is None:
            self._gradient = posterior_gradient(density, theta)
        gradient = self._gradient
        rng = target.stream.generator(Purpose.PROPOSAL)
        metric = 1 / target.precision
        noise = np.sqrt(2 * eps * metric) * rng.standard_normal(theta.shape)
        proposed = theta - eps * metric * gradient + noise
        new_energy = density.energy(proposed)
        new_gradient = posterior_gradient(density, proposed)
        rise = new_energy - self.energies
        rise = rise + prior_energy(density, proposed) - prior_energy(density, theta)
        forth = proposed - theta + eps * metric * gradient
        back = theta - proposed + eps * metric * new_gradient
        hastings = ((forth**2 - back**2) / metric).sum(axis=1) / (4 * eps[:, 0])
        if adapting:
            self.adapted.adapt(np.exp(np.minimum(hastings - rise, 0)), self.config.acceptance)
        accepted = rise - hastings <= rng.standard_exponential(len(theta))
        theta[accepted] = proposed[accepted]
        self.energies[accepted] = new_energy[accepted]
        gradient[accepted] = new_gradient[accepted]
        work = np.broadcast_to([density.n_data, 1.0, 1.0], (len(theta), 3))
        self.counts += np.column_stack([accepted, work])
