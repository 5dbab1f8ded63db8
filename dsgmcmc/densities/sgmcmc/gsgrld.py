r"""Stochastic gradient Riemannian Langevin dynamics in the metric of a density [Ma 2015, eq. 14; Patterson 2013].

With S(theta) the root of the inverse of the density's diagonal metric, G^-1 = S^2,

    theta <- theta - eps (S^2 grad U~ - Gamma) + N(0, 2 eps S^2),       Gamma_i = d S_i^2 / d theta_i

The sign of Gamma follows from [Ma 2015, eq. 3]; eq. 6 and 14 print the opposite sign. With the metric G^-1 = theta of
latent Dirichlet allocation this is the sampler of [Patterson 2013], whose eps is twice the eps here. (`sgrld` uses the
Fisher metric of the factorisation, for which Gamma is zero.)

Target: the posterior, up to the noise of the parts' gradients and O(eps). Left out: a Metropolis correction, and
metrics that are not diagonal, for which `dsgmcmc.densities.sgmcmc.gsgrhmc` needs fewer derivatives.

[Patterson 2013] S. Patterson, Y. W. Teh: Stochastic gradient Riemannian Langevin dynamics on the probability simplex.
"""

from __future__ import annotations

from math import sqrt
from typing import ClassVar

from pydantic import Field

from dsgmcmc.densities.density import Riemannian
from dsgmcmc.densities.vector import VectorTarget
from dsgmcmc.errors import InputError
from dsgmcmc.kernels.formula import Formula
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.samplers.step_size import StepSize

UPDATE = Formula("theta = theta - eps * root * (root * grad - 2 * divergence) + noise * root * z")


class GSGRLDConfig(StepSize):
    """Configuration of SGRLD in the metric of a density; `step_size` is eps, in the time of the dynamics."""

    step_size: float = Field(0.01, gt=0, allow_inf_nan=False)


class GSGRLD(Sampler[GSGRLDConfig, VectorTarget[Riemannian]]):
    """Langevin dynamics in the diagonal metric of the density."""

    Config = GSGRLDConfig
    gradients = ("part", "full", "control-variate")
    draws_data = True
    densities: ClassVar[type | None] = Riemannian
    scratch = ("g", "root", "divergence")

    def step(self, target: VectorTarget[Riemannian], iteration: int) -> None:
        """Run one iteration: one update of every row."""
        eps, density = self.step_size(target, iteration), target.density
        for block in self.gradient.by_block(target, "theta"):
            root, divergence = density.metric(block["theta"])
            if root.ndim != 2:
                raise InputError("gsgrld takes diagonal metrics alone, whose root is (n, D): use gsgrhmc")
            block["root"][:], block["divergence"][:] = root, divergence
            block.update(UPDATE, eps=eps, noise=sqrt(2 * eps))
