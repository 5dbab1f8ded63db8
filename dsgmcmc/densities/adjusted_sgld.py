r"""SGLD with injected noise reduced by the noise of the gradients [El Hanchi 2019, section 5.2.2].

    theta <- theta - eps grad U~(theta) + N(0, 2 eps I - eps^2 V^)

In every iteration V^ estimates the covariance of grad U~, from the S terms whose mean is grad U~.
In directions where the variance of the gradient is above 2 / eps, no noise is added. The sampler
counts these directions. If they are rare, a Gaussian of precision A has the stationary covariance
that Langevin dynamics with exact gradients gives, (A (I - eps A / 2))^-1; otherwise the
distribution is wider. The step has the unit of SGLD. [Ma 2015, eq. 9] has the correction for any
dynamics, but does not say how to estimate V.

Target: the posterior, as eps -> 0. Left out: a correction for the noise of V^, which averages out
over iterations.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field
from typing_extensions import override

from dsgmcmc.densities.base import DensitySampler
from dsgmcmc.densities.density import multiply
from dsgmcmc.densities.models.sums import SumDensity
from dsgmcmc.densities.subsampling import DATUM_GRADIENTS, Subsample, SumTarget
from dsgmcmc.kernels.formulas.formula import Formula
from dsgmcmc.samplers.step_size import StepSize
from dsgmcmc.targets.state import Attributes

DRIFT = Formula("""
theta = theta - eps * grad
normal = z
""")


class AdjustedSGLDConfig(StepSize):
    """Configuration of adjusted SGLD; `step_size` is h, as for SGLD."""

    step_size: float = Field(0.2, gt=0)


class AdjustedSGLD(DensitySampler[AdjustedSGLDConfig, SumDensity]):
    """Langevin dynamics whose injected noise and gradient noise together have variance 2 eps."""

    Config = AdjustedSGLDConfig
    gradients = ("adaptive", *(name for name in DATUM_GRADIENTS if name != "adaptive"))
    densities = SumDensity
    scratch = ("g", "normal")
    gradient: Subsample

    def __init__(self, config: AdjustedSGLDConfig, burn_in: int) -> None:
        super().__init__(config, burn_in)
        self._clipped = 0  # number of negative eigenvalues of 2 eps I - eps^2 V^
        self._directions = 0  # number of all eigenvalues of these matrices
        self.replicated = (Attributes(self, "_clipped", "_directions"),)

    @override
    def metrics(self) -> dict[str, float]:
        """Add ``clipped``, the share of directions without injected noise."""
        clipped = self._clipped / max(self._directions, 1)
        return {**super().metrics(), "clipped": clipped}

    @override
    def step(self, target: SumTarget, iteration: int) -> None:
        eps = self.step_size(target, iteration) / target.curvature_bound
        for block in self.gradient.by_block(target, "theta"):
            block.update(DRIFT, eps=eps)
            noise = self.gradient.noise()
            diverged = ~np.isfinite(noise).all(axis=(1, 2))
            noise[diverged] = 0.0
            block["theta"][diverged] = np.nan  # which is detected as divergence
            values, vectors = np.linalg.eigh(2 * eps * np.eye(block.dimension) - eps**2 * noise)
            self._clipped += int((values < 0).sum())
            self._directions += values.size
            spread = vectors * np.sqrt(np.maximum(values, 0))[:, None, :]
            block["theta"][:] += multiply(spread, block["normal"])
