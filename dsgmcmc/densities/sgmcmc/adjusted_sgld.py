r"""Stochastic gradient Langevin dynamics, the gradients' noise taken out of its own [El Hanchi 2019, section 5.2.2].

    theta <- theta - eps grad U~(theta) + N(0, 2 eps I - eps^2 V^)

V^ is the covariance of grad U~ as the S terms of which it is the mean show it, one estimate an iteration. Where a
direction has more noise than 2 / eps, none is added; how often that happens is counted, and where it is often, the law
is wider than that of Langevin dynamics with exact gradients, (A (I - eps A / 2))^-1 on a Gaussian of precision A. The
step is given as for SGLD. [Ma 2015, eq. 9] has the correction for any dynamics, but no V^.

Target: the posterior, as eps -> 0. Left out: the noise of V^, which the mean over many iterations takes away.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from pydantic import Field

from dsgmcmc.densities.subsampling import Subsample, SumTarget
from dsgmcmc.densities.sums import SumDensity
from dsgmcmc.kernels.formula import Formula
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.samplers.gradients import DATUM_GRADIENTS
from dsgmcmc.samplers.step_size import StepSize
from dsgmcmc.targets.state import Replicated
from dsgmcmc.types import Float64

DRIFT = Formula(
    """
theta = theta - eps * grad
normal = z
"""
)


class AdjustedSGLDConfig(StepSize):
    """Configuration of adjusted SGLD; `step_size` is h, as for SGLD."""

    step_size: float = Field(0.2, gt=0, allow_inf_nan=False)


@dataclass
class AdjustedTally(Replicated):
    """How many eigenvalues of what was to be added were below zero, and how many there were, (2,)."""

    saved_as: ClassVar[dict[str, str]] = {"clipped": "adjusted_sgld.clipped"}

    clipped: Float64 = field(default_factory=lambda: np.zeros(2))


class AdjustedSGLD(Sampler[AdjustedSGLDConfig, SumTarget]):
    """Langevin dynamics with the noise of exact gradients."""

    Config = AdjustedSGLDConfig
    gradients = ("adaptive", *(name for name in DATUM_GRADIENTS if name != "adaptive"))
    densities = SumDensity
    scratch = ("g", "normal")
    gradient: Subsample

    def __init__(self, config: AdjustedSGLDConfig, burn_in: int) -> None:
        super().__init__(config, burn_in)
        self.tally = AdjustedTally()
        self.replicated = (self.tally,)

    def metrics(self) -> dict[str, float]:
        """Entries that this sampler adds to a line of metrics.

        Here: with the part of all directions in which nothing could be added.
        """
        clipped, every = self.tally.clipped
        return {**super().metrics(), "clipped": float(clipped / max(every, 1.0))}

    def step(self, target: SumTarget, iteration: int) -> None:
        """One step on every row."""
        eps = self.step_size(target, iteration) / target.curvature_bound
        for block in self.gradient.by_block(target, "theta"):
            block.update(DRIFT, eps=eps)
            noise = self.gradient.noise()
            lost = ~np.isfinite(noise).all(axis=(1, 2))  # whoever looks at the state finds that it has diverged
            noise[lost], block["theta"][lost] = 0.0, np.nan
            values, vectors = np.linalg.eigh(2 * eps * np.eye(block.dimension) - eps**2 * noise)
            self.tally.clipped = self.tally.clipped + np.array([(values < 0).sum(), values.size], np.float64)
            spread = vectors * np.sqrt(np.maximum(values, 0))[:, None, :]
            block["theta"][:] += np.einsum("nij,nj->ni", spread, block["normal"])
