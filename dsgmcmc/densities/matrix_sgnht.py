r"""Nose-Hoover thermostat with a matrix of frictions, for gradient noise with any covariance.

Let P be the diagonal metric (typical curvature + the prior's precision), h = sqrt(2 eps),
H = h P^-1/2, Xi a symmetric matrix (D, D) for every row, A the setting `diffusion`, and mu = D. In
the splitting of `sgnht`, one update is

    r     <- r - H grad U~,                                         theta <- theta + (H / 2) r
    Xi    <- Xi + (h / (2 mu)) (r r^T - I)
    r     <- exp(-Xi h) r + N(0, A (1 - exp(-2 Xi h)) Xi^-1)
    Xi    <- Xi + (h / (2 mu)) (r r^T - I),                         theta <- theta + (H / 2) r

`MatrixSGNHT` says why this is right for any covariance [Ma 2015, eq. 3].

Target: the posterior, up to O(h^2), for independent noise whose covariance does not depend on
theta. Left out: Metropolis correction.
"""

from __future__ import annotations

from math import sqrt
from typing import Any, ClassVar

import numpy as np
from pydantic import Field
from typing_extensions import override

from dsgmcmc.densities.base import DensitySampler
from dsgmcmc.densities.density import Density, multiply
from dsgmcmc.densities.vector import VectorTarget
from dsgmcmc.errors import InputError
from dsgmcmc.kernels.formulas.formula import Formula
from dsgmcmc.samplers.step_size import StepSize
from dsgmcmc.targets.state import Attributes, StateField
from dsgmcmc.types import Float64

KICK = Formula(
    """
r = r - step * grad
theta = theta + 0.5 * step * r
normal = z
""",
    columns=("step",),
)
DRIFT = Formula("theta = theta + 0.5 * step * r", columns=("step",))

#: Maximum of D; an eigendecomposition takes about 9 D^3 operations.
MAX_DIMENSION = 50


class MatrixSGNHTConfig(StepSize):
    """Configuration of the thermostat; `step_size` is h^2 / 2, with h the time step."""

    step_size: float = Field(0.01, gt=0)
    diffusion: float = Field(0.5, gt=0, description="A, the friction if gradients have no noise")


class MatrixSGNHT(DensitySampler[MatrixSGNHTConfig, Density]):
    """A Nose-Hoover thermostat with a matrix of frictions.

    Let V be the covariance of the noise in P^-1/2 grad U~. This noise acts on momenta like the
    diffusion h V / 2. With S = A I + h V / 2 the dynamics have the form of [Ma 2015, eq. 3] with
    D = S for r and

        H(z) = U + |r|^2 / 2 + (mu / 2) sum_jk (Xi - S)_jk^2
        Q(r_i, Xi_jk) = (r_j delta_ik + r_k delta_ij) / (2 mu)

    The friction is S + (Xi - S) = Xi, and the force on Xi is (r r^T - I) / mu, where I comes from
    the correction Gamma. So exp(-H) is invariant for every covariance V, and the mean of Xi becomes
    S without knowledge of V. If V depends on theta, S is an average, and the
    error is O(h), as for all thermostats. A thermostat with one friction
    per row (`sgnht`, thermostat = "row") has this property only for V proportional to the identity;
    one friction per element suffices for diagonal V. With mu = D the eigenvalues of Xi - S are of
    order 1 for all D.

    The error O(h^2) has a constant that grows with h^2 V, which default steps keep below 0.3.
    """

    Config = MatrixSGNHTConfig
    gradients = ("part", "control-variate")
    draws_data = True
    fields = (StateField("theta"), StateField("r"))  # position and momentum
    momentum = "r"
    scratch = ("g", "normal")
    defaults: ClassVar[dict[str, Any]] = {"schedule": "random"}

    def __init__(self, config: MatrixSGNHTConfig, burn_in: int) -> None:
        super().__init__(config, burn_in)
        self.frictions: Float64 = np.zeros((0, 0, 0))  # Xi of every row
        self.replicated = (Attributes(self, "frictions"),)

    @classmethod
    @override
    def check(cls, config: MatrixSGNHTConfig, schedule: str, grid: int, thin: int) -> None:
        """Raise `InputError` if the parts of successive iterations depend on each other."""
        cls.needs_independent_parts(
            config,
            schedule,
            grid,
            subject="the thermostat of matrix_sgnht",
            otherwise="take another sampler",
        )

    @override
    def start(self, target: VectorTarget[Density], sd: float) -> None:
        """Set frictions to A I, too."""
        rows, D = target.block["theta"].shape
        if D > MAX_DIMENSION:
            raise InputError(
                f"matrix_sgnht takes at most {MAX_DIMENSION} dimensions: found {D}; use sghmc"
            )
        super().start(target, sd)
        self.frictions = np.tile(self.config.diffusion * np.eye(D), (rows, 1, 1))

    @override
    def step(self, target: VectorTarget[Density], iteration: int) -> None:
        h = sqrt(2 * self.step_size(target, iteration))
        scaled = h / np.sqrt(target.precision)
        for block in self.gradient.by_block(target, "theta"):
            block.update(KICK, step=scaled)
            self._update_frictions(block["r"], h)
            block["r"][:] = self._after_friction(block["r"], block["normal"], h)
            self._update_frictions(block["r"], h)
            block.update(DRIFT, step=scaled)

    def _update_frictions(self, r: Float64, h: float) -> None:
        """Update the frictions for half a step."""
        D = r.shape[1]
        self.frictions = self.frictions + 0.5 * h / D * (r[:, :, None] * r[:, None, :] - np.eye(D))

    def _after_friction(self, r: Float64, normal: Float64, h: float) -> Float64:
        """Return the momenta after friction and noise for a time h.

        They are computed along the eigenvectors of Xi.
        """
        # where it is not finite, the chain has diverged, which is detected later
        xi = np.where(np.isfinite(self.frictions), self.frictions, 0.0)
        values, axes = np.linalg.eigh(xi)
        x = np.where(values == 0, 1e-12, values * h)
        spread = np.sqrt(-self.config.diffusion * h * np.expm1(-2 * x) / x)
        damped = np.exp(-x) * multiply(axes.swapaxes(1, 2), r)
        noise = spread * multiply(axes.swapaxes(1, 2), normal)
        return multiply(axes, damped + noise)
