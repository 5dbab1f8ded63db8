r"""Samplers in the metric G(theta) of a density [Ma 2015]: `GSGRHMC` and `GSGRLD`.

S(theta) is a root of the inverse metric, S S^T = G^-1.

Target of both: the posterior, up to the noise of the parts' gradients and O(eps). Left out: a
Metropolis correction.
"""

from __future__ import annotations

from math import sqrt

from pydantic import Field
from typing_extensions import override

from dsgmcmc.densities.base import DensitySampler
from dsgmcmc.densities.density import Riemannian, multiply
from dsgmcmc.densities.vector import VectorTarget
from dsgmcmc.errors import InputError
from dsgmcmc.kernels.formulas.formula import Formula
from dsgmcmc.samplers.base import C
from dsgmcmc.samplers.step_size import StepSize
from dsgmcmc.targets.state import StateField

KICK = Formula("kick = noise * z - eps * (grad + turned)")
UPDATE = Formula("theta = theta - eps * root * (root * grad - 2 * divergence) + noise * root * z")


class RiemannianSampler(DensitySampler[C, Riemannian]):
    """A sampler in the metric of the density."""

    gradients = ("part", "full", "control-variate")
    draws_data = True
    densities = Riemannian


class GSGRHMCConfig(StepSize):
    """Configuration of gSGRHMC; `step_size` is eps, in the time of the dynamics."""

    step_size: float = Field(0.02, gt=0)


class GSGRHMC(RiemannianSampler[GSGRHMCConfig]):
    """Hamiltonian dynamics with friction in the density's metric [Ma 2015, algorithm 1, eq. 16].

    With momenta r ~ N(0, 1),

        r     <- r - eps S^T grad U~ + eps div - eps S^T S r + N(0, 2 eps S^T S)
        theta <- theta + eps S r

    in this order, where div_i = sum_j d S_ji / d theta_j. Without `div` (the "naive" sampler of [Ma
    2015, section 4.1]) the distribution is wrong at any step size. The last two signs in eq. 17 are
    misprints, with which friction would accelerate; the signs in algorithm 1 are right. The
    friction is S^T S, the inverse metric, as in algorithm 1. It has no separate setting. Left out:
    an estimate of the gradients' noise, which has covariance S^T V S in these coordinates if V is
    the covariance of gradients.
    """

    Config = GSGRHMCConfig
    fields = (StateField("theta"), StateField("r"))  # position and momentum
    momentum = "r"
    scratch = ("g", "kick", "turned")

    @override
    def step(self, target: VectorTarget[Riemannian], iteration: int) -> None:
        density = target.density
        eps = self.step_size(target, iteration)
        for block in self.gradient.by_block(target, "theta"):
            root, divergence = density.metric(block["theta"])
            block["turned"][:] = multiply(root, block["r"])
            block.update(KICK, eps=eps, noise=sqrt(2 * eps))
            transposed = root if root.ndim == 2 else root.swapaxes(1, 2)
            block["r"][:] += multiply(transposed, block["kick"]) + eps * divergence
            block["theta"][:] += eps * multiply(root, block["r"])


class GSGRLDConfig(StepSize):
    """Configuration of SGRLD in a density's metric; `step_size` is eps, in the dynamics' time."""

    step_size: float = Field(0.01, gt=0)


class GSGRLD(RiemannianSampler[GSGRLDConfig]):
    """Langevin dynamics in the diagonal metric of a density [Ma 2015, eq. 14; Patterson 2013].

    With a diagonal S,

        theta <- theta - eps (S^2 grad U~ - Gamma) + N(0, 2 eps S^2),  Gamma_i = d S_i^2 / d theta_i

    The sign of Gamma follows from [Ma 2015, eq. 3]; eq. 6 and 14 print the opposite sign. With the
    metric G^-1 = theta of latent Dirichlet allocation this is the sampler of [Patterson 2013],
    whose eps is twice the eps here. (`sgrld` uses the Fisher metric of the factorisation, for which
    Gamma is zero.) Left out: metrics that are not diagonal, for which `gsgrhmc` needs fewer
    derivatives.

    [Patterson 2013] S. Patterson, Y. W. Teh: Stochastic gradient Riemannian Langevin dynamics on
    the probability simplex.
    """

    Config = GSGRLDConfig
    scratch = ("g", "root", "divergence")

    @override
    def step(self, target: VectorTarget[Riemannian], iteration: int) -> None:
        density = target.density
        eps = self.step_size(target, iteration)
        for block in self.gradient.by_block(target, "theta"):
            root, divergence = density.metric(block["theta"])
            if root.ndim != 2:
                raise InputError(
                    "gsgrld takes only diagonal metrics, whose root is (n, D): use gsgrhmc"
                )
            block["root"][:] = root
            block["divergence"][:] = divergence
            block.update(UPDATE, eps=eps, noise=sqrt(2 * eps))
