r"""Generalised stochastic gradient Riemannian Hamiltonian Monte Carlo [Ma 2015, algorithm 1, eq. 16].

With G(theta) the metric of the density, S(theta) a root of its inverse, S S^T = G^-1, and momenta r ~ N(0, 1),

    r     <- r - eps S^T grad U~ + eps div - eps S^T S r + N(0, 2 eps S^T S),     div_i = sum_j d S_ji / d theta_j
    theta <- theta + eps S r

in this order. Without `div` (the "naive" sampler of [Ma 2015, section 4.1]) the distribution is wrong at any step size.
The last two signs in eq. 17 are misprints, with which friction would accelerate; the signs in algorithm 1 are right.

The friction is S^T S, the inverse metric, as in algorithm 1. It has no separate setting.

Target: the posterior, up to the noise of the parts' gradients and O(eps). Left out: a Metropolis correction, and an
estimate of that noise, which has covariance S^T V S in these coordinates if V is the covariance of gradients.
"""

from __future__ import annotations

from math import sqrt
from typing import ClassVar

import numpy as np
from pydantic import Field

from dsgmcmc.densities.density import Riemannian
from dsgmcmc.densities.vector import VectorTarget
from dsgmcmc.kernels.formula import Formula
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.samplers.step_size import StepSize
from dsgmcmc.targets.state import StateField
from dsgmcmc.types import Float64, Purpose

KICK = Formula("kick = noise * z - eps * (grad + turned)")


class GSGRHMCConfig(StepSize):
    """Configuration of gSGRHMC; `step_size` is eps, in the time of the dynamics."""

    step_size: float = Field(0.02, gt=0, allow_inf_nan=False)


class GSGRHMC(Sampler[GSGRHMCConfig, VectorTarget[Riemannian]]):
    """Hamiltonian dynamics with friction, in the metric of the density."""

    Config = GSGRHMCConfig
    gradients = ("part", "full", "control-variate")
    draws_data = True
    densities: ClassVar[type | None] = Riemannian
    scratch = ("g", "kick", "turned")

    @property
    def fields(self) -> tuple[StateField, ...]:
        """Position and momentum."""
        return (StateField("theta"), StateField("r"))

    def start(self, target: VectorTarget[Riemannian], sd: float) -> None:
        """Draw positions from N(0, `sd`^2), and momenta from N(0, 1)."""
        self.start_field(target, "theta", sd)
        self.start_field(target, "r", 1.0, Purpose.MOMENTUM)

    def step(self, target: VectorTarget[Riemannian], iteration: int) -> None:
        """Run one iteration: one update of every row."""
        eps, density = self.step_size(target, iteration), target.density
        for block in self.gradient.by_block(target, "theta"):
            root, divergence = density.metric(block["theta"])
            block["turned"][:] = _times(root, block["r"])
            block.update(KICK, eps=eps, noise=sqrt(2 * eps))
            transposed = root if root.ndim == 2 else root.swapaxes(1, 2)
            block["r"][:] += _times(transposed, block["kick"]) + eps * divergence
            block["theta"][:] += eps * _times(root, block["r"])


def _times(root: Float64, rows: Float64) -> Float64:
    """Multiply every row by its root, a diagonal (n, D) or a matrix (n, D, D)."""
    product: Float64 = root * rows if root.ndim == 2 else np.einsum("nij,nj->ni", root, rows)
    return product
