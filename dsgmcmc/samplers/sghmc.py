r"""Stochastic gradient Hamiltonian Monte Carlo: momentum and friction.

[Chen 2014, eq. 15; Ma 2015, eq. 12]. With P the metric, h_i = sqrt(2 eps / l_i) the step of a row
(`dsgmcmc.samplers.metrics`), friction gamma and momenta r ~ N(0, 1), one update is, for
``splitting = "baoa"``,

    r     <- r - h_i P^-1/2 grad U~
    theta <- theta + (h_i / 2) P^-1/2 r
    r     <- c r + sqrt(1 - c^2) z,                               c = exp(-gamma h), h = sqrt(2 eps)
    theta <- theta + (h_i / 2) P^-1/2 r

and for ``splitting = "published"`` [Chen 2014, eq. 15], with v = h r, eta = h^2 and a = gamma h,

    r     <- (1 - a) r - h_i P^-1/2 grad U~ + sqrt(2 a) z
    theta <- theta + h_i P^-1/2 r

The two lines of "published" are applied one after the other. If they were applied simultaneously,
as [Ma 2015, eq. 12] prints them, they would be Euler's explicit method, which diverges at small
friction.
"""

from __future__ import annotations

from math import exp, sqrt
from typing import Any, Literal

from pydantic import Field
from typing_extensions import override

from dsgmcmc.errors import InputError
from dsgmcmc.samplers.base import NORMAL
from dsgmcmc.samplers.step_size import RisingStep
from dsgmcmc.samplers.underdamped import BAOA, Underdamped
from dsgmcmc.settings import named
from dsgmcmc.targets.base import Target
from dsgmcmc.types import Purpose

PUBLISHED = """\
r = damp * r - step * grad + spread * z
theta = theta + step * r
"""
UPDATES = {"baoa": BAOA, "published": PUBLISHED}

#: With a correction for noise: the fraction of the momentum that an update keeps, and the sd of the
#: noise that it adds, elementwise; `fade` is gamma h, and `parts` is B - 1.
FRICTION = {
    "baoa": """\
damp = exp(-fade)
spread = sqrt(1 - damp * damp - 0.25 * parts * h_i * h_i * p * (1 + damp) * (1 + damp))
""",
    "published": """\
damp = 1 - fade
spread = sqrt(2 * fade - parts * h_i * h_i * p)
""",
}


class SGHMCConfig(RisingStep):
    """Configuration of SGHMC; `step_size` is eps, half the square of the step h of the dynamics."""

    step_size: float = Field(0.01, gt=0, description="eps; the step of a row is sqrt(2 eps / l)")
    splitting: Literal["baoa", "published"] = Field(
        "baoa", description="order of kick, drift and friction"
    )
    metric: Literal["fisher", "kronecker", "identity"] = Field(
        "fisher", description="coordinates of the step"
    )
    gamma: float = Field(0.5, gt=0, description="friction in units of the step h")
    refresh: int = Field(
        0, ge=0, description="updates between new draws of all momenta, with half kicks; 0: never"
    )
    noise_correction: bool = Field(
        False,
        description=(
            "add less noise, because gradients have noise, too; only with independent parts"
        ),
    )


class SGHMC(Underdamped[SGHMCConfig]):
    """Stochastic gradient Hamiltonian Monte Carlo.

    Target: the posterior, up to the noise of the parts' gradients and O(eps). On N(0, 1), with
    noise of variance V that is independent in every update, and without correction, Var theta is 1
    + h^2 V (1 + c) / ((1 - c) (4 - h^2)) for "baoa" and (2 a + h^2 V) (2 - a) / (a (4 - 2 a - h^2))
    for "published". The error with shuffled parts is much smaller, as long as h B stays below about
    1. There is no Metropolis correction.

    ``refresh = L`` draws all momenta again every L updates, with half a kick before and half a kick
    after. Whole kicks, as in [Chen 2014, algorithm 2], would make Var theta wrong by the factor L /
    (L + 1) at any step size.

    ``noise_correction`` subtracts the variance of the gradient noise from the variance of the added
    noise. In the metric, it is V = (B - 1) p_ik on average, but only for independent parts: the
    noise of shuffled parts cancels within a sweep. Then 1 - c^2 becomes 1 - c^2 - h_i^2 V (1 + c)^2
    / 4, and 2 a becomes 2 a - h_i^2 V. A step at which either is negative shows as divergence.
    """

    Config = SGHMCConfig
    gradients = ("part", "full", "control-variate")
    draws_data = True

    def __init__(self, config: SGHMCConfig, burn_in: int) -> None:
        super().__init__(config, burn_in, config.metric)
        source = UPDATES[config.splitting]
        if config.noise_correction:
            source = FRICTION[config.splitting] + source
        self.prepare(source)

    @classmethod
    @override
    def check(cls, config: SGHMCConfig, schedule: str, grid: int, thin: int) -> None:
        """Refuse a correction for gradient noise whose variance is not known."""
        if config.noise_correction and config.metric == "identity":
            raise InputError(
                "sampler.noise_correction follows from the metric: use"
                f" {named('sampler.metric')}=fisher"
            )
        super().check(config, schedule, grid, thin)

    @override
    def step(self, target: Target, iteration: int) -> None:
        config = self.config
        self.metric.refresh(target, iteration)
        h = sqrt(2 * self.step_size(target, iteration))
        friction = self._friction(h, target.sweep_length)
        fresh = config.refresh > 0 and iteration % config.refresh == 0
        half_kick = self.end_step(target, h)
        update = self.both_halves
        if fresh or half_kick is not None:
            update = self.second_half
        for rows in self.gradient(target, "theta", before=half_kick):
            if fresh:
                rows.update(NORMAL, Purpose.MOMENTUM, theta="r", sd=1.0)
            self.metric.update(target, rows, update, h, **friction)

    def _friction(self, h: float, sweep_length: int) -> dict[str, Any]:
        """Values of the names that describe friction in the formula of an update."""
        fade = self.config.gamma * h
        if self.config.noise_correction:
            return {"fade": fade, "parts": float(sweep_length - 1)}
        if self.config.splitting == "published":
            return {"damp": 1 - fade, "spread": sqrt(2 * fade)}
        return {"damp": exp(-fade), "spread": sqrt(1 - exp(-2 * fade))}
