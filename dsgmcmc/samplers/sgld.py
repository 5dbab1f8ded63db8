r"""Stochastic gradient Langevin dynamics [Welling 2011, eq. 4], on blocks as in DSGLD [Ahn 2015].

    theta <- theta - eps grad U~(theta) + N(0, 2 eps)

Target: the posterior, as eps -> 0. At a constant step the bias is O(eps): for a Gaussian with
precision A, the draws have covariance (A (I - eps A / 2))^-1 with exact gradients, and the noise of
a part's gradient adds to it. [Welling 2011] writes eps / 2 where we write eps. Left out: the
Metropolis correction, as in the paper.

The setting `step_size` is h, with eps = h / max(count / p_t), the target's `curvature_bound`: count
is the number of ratings of a row or column in a part, and p_t the part's probability. The curvature
of U~ in one row is tau count / p_t times the mean square of the other factor, so that h carries
over between data sets.
"""

from __future__ import annotations

from math import sqrt

from pydantic import Field
from typing_extensions import override

from dsgmcmc.kernels.formulas.formula import Formula
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.samplers.step_policy import BelowTau
from dsgmcmc.samplers.step_size import TauStep
from dsgmcmc.targets.base import Target

UPDATE = Formula("theta = theta - eps * grad + noise * z")


class SGLDConfig(TauStep):
    """Configuration of SGLD; `step_size` is h, stable below about 2 / tau."""

    step_size: float = Field(0.9, gt=0, description="h; the step is h / largest count of a row")


class SGLD(Sampler[SGLDConfig, Target]):
    """Stochastic gradient Langevin dynamics."""

    Config = SGLDConfig
    Steps = BelowTau
    gradients = ("part", "full", "control-variate")
    draws_data = True

    @override
    def step(self, target: Target, iteration: int) -> None:
        size = self.config.limited(self.step_size(target, iteration), target.noise_precision)
        eps = size / target.curvature_bound
        for rows in self.gradient(target, "theta"):
            rows.update(UPDATE, eps=eps, noise=sqrt(2 * eps))
