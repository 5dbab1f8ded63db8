r"""Stochastic gradient Nose-Hoover thermostats: adaptive friction.

[Ding 2014, algorithm 1; Ma 2015, eq. 15]. Friction xi grows while the mean square of the momenta is
above 1, and falls while it is below 1, so that gradients may have noise of any variance. P is the
metric, h_i the step of a row (`dsgmcmc.samplers.metrics`), h = sqrt(2 eps), and A the added
`diffusion`. In the splitting BADODAB of [Leimkuhler & Shang 2016], with half kicks joined, one
update is

    r     <- r - h_i P^-1/2 grad U~
    theta <- theta + (h_i / 2) P^-1/2 r
    xi    <- xi + (h / 2) (|r|^2 / d - 1)
    r     <- exp(-xi h) r + sqrt(A (1 - exp(-2 xi h)) / xi) z
    xi    <- xi + (h / 2) (|r|^2 / d - 1)
    theta <- theta + (h_i / 2) P^-1/2 r

The invariant density is exp(-U - |r|^2 / 2 - (d / 2) sum (xi - A)^2); [Ma 2015, section 3.1] prints
1 / (2 d) for d / 2, and eq. 15 does not leave that density invariant.

[Leimkuhler & Shang 2016] Adaptive thermostats for noisy gradient systems, SIAM J. Sci. Comput. 38.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field
from typing_extensions import override

from dsgmcmc.errors import InputError
from dsgmcmc.samplers.gradients import PartGradient
from dsgmcmc.samplers.step_size import RisingStep
from dsgmcmc.samplers.underdamped import MetricSampler
from dsgmcmc.settings import named
from dsgmcmc.targets.base import Target
from dsgmcmc.targets.state import ParameterBlock, Replicated, StateField
from dsgmcmc.types import Float64, Named

KICK = """\
r = r - step * grad
theta = theta + 0.5 * step * r
square = r * r
"""
FRICTION = """\
r = damp * r + spread * z
theta = theta + 0.5 * step * r
square = r * r
"""

#: The whole update, if every element has a thermostat. The noise's variance is 2 A h exp(-x)
#: sinh(x) / x, x = xi h. A series replaces sinh(x) / x, because it needs no limit at x = 0; its
#: error is 2e-8 at x = 1 and 2e-3 at x = 3.
ELEMENTWISE = """\
r = r - step * grad
theta = theta + 0.5 * step * r
xi = xi + 0.5 * time * (r * r - 1)
x = xi * time
damp = exp(-x)
series = 1 + x * x / 6 * (1 + x * x / 20 * (1 + x * x / 42 * (1 + x * x / 72)))
r = damp * r + sqrt(2 * diffusion * time * damp * series) * z
xi = xi + 0.5 * time * (r * r - 1)
theta = theta + 0.5 * step * r
"""


class SGNHTConfig(RisingStep):
    """Configuration of SGNHT; `step_size` is eps, half the square of the step h of the dynamics."""

    step_size: float = Field(0.01, gt=0, description="eps; the step of a row is sqrt(2 eps / l)")
    thermostat: Literal["row", "scalar", "element"] = Field(
        "row", description="one thermostat for each row, for all rows, or for each element"
    )
    diffusion: float = Field(0.5, gt=0, description="A, the friction if gradients have no noise")
    metric: Literal["fisher", "kronecker", "identity"] = Field(
        "fisher", description="coordinates of the step"
    )


@dataclass
class Thermostat(Replicated):
    """Friction xi that all elements share, (1,)."""

    saved_as: ClassVar[dict[str, str]] = {"xi": "thermostat.xi"}

    xi: Float64


class SGNHT(MetricSampler[SGNHTConfig]):
    """Stochastic gradient Nose-Hoover thermostats.

    A single ``thermostat = "scalar"`` for all d elements, as published, cannot match noise that
    differs between rows: rows with more noise than the average are overdispersed, others
    underdispersed. One thermostat for every ``"row"`` (d = D) or ``"element"`` (d = 1) can: in the
    recipe of [Ma 2015, eq. 3], Q couples r_i and xi_i by r_i / d.

    Target: the posterior, up to O(h^2), for independent normal noise that does not depend on theta
    and whose covariance in the metric the thermostats can match: V I in each row for "row",
    diagonal for "element". Then the mean of xi is A + h_i^2 V / (2 h). Otherwise the error is O(h):
    with "row", a direction k with noise V_k tends to the temperature (A + h V_k / 2) / (A + h
    mean(V) / 2); with "element", correlated noise makes elements of theta correlated. Noise that
    depends on theta causes an error of O(h) with all thermostats. There is no Metropolis
    correction.

    Minibatches have correlated noise, which `dsgmcmc.densities.matrix_sgnht` handles for one
    vector: here a density of several parameters is refused. So are shuffled parts: their noise
    cancels within a sweep, but a thermostat adapts to one part at a time. On a plain vector of
    several rows, "scalar" couples the rows, which are then not independent chains.
    """

    Config = SGNHTConfig
    gradients = ("part", "control-variate")
    draws_data = True
    momentum = "r"
    defaults: ClassVar[dict[str, Any]] = {**MetricSampler.defaults, "schedule": "random"}

    def __init__(self, config: SGNHTConfig, burn_in: int) -> None:
        super().__init__(config, burn_in, config.metric)
        self.shared = Thermostat(np.full(1, config.diffusion))
        if config.thermostat == "scalar":
            self.replicated = (self.metric, self.shared)
        self.kick = self.metric.formula(KICK, row_sums=("square",))
        self.friction = self.metric.formula(FRICTION, rows=("damp", "spread"), row_sums=("square",))
        self.elementwise = self.metric.formula(ELEMENTWISE)

    @classmethod
    @override
    def check(cls, config: SGNHTConfig, schedule: str, grid: int, thin: int) -> None:
        """Refuse dependent parts, and thermostats of elements if the metric rotates coordinates."""
        if config.metric == "kronecker" and config.thermostat == "element":
            raise InputError(
                "sampler.thermostat=element needs fixed coordinates, but the Kronecker metric"
                f" rotates them: use {named('sampler.thermostat')}=row"
            )
        cls.needs_independent_parts(
            config,
            schedule,
            grid,
            subject="the thermostat of sgnht",
            otherwise="take another sampler",
        )

    @property
    @override
    def fields(self) -> tuple[StateField, ...]:
        """Position, momentum, the thermostats of rows or elements, and the fields of the metric."""
        fields = [StateField("theta"), StateField("r")]
        if self.config.thermostat == "row":
            fields.append(StateField("xi", 1))
        if self.config.thermostat == "element":
            fields.append(StateField("xi"))
        return (*fields, *self.metric.fields)

    @override
    def start(self, target: Target, sd: float) -> None:
        """Draw positions from N(0, sd^2) and momenta from N(0, 1), and set every friction to A."""
        super().start(target, sd)
        if self.config.thermostat == "scalar":
            return
        for block in target.blocks():
            block["xi"].fill(self.config.diffusion)

    @override
    def step(self, target: Target, iteration: int) -> None:
        self.metric.refresh(target, iteration)
        h = sqrt(2 * self.step_size(target, iteration))
        if self.config.thermostat == "scalar":
            self._step_with_shared(target, h)
        elif self.config.thermostat == "row":
            self._step_by_rows(target, h)
        else:
            diffusion = self.config.diffusion
            for block in self.gradient.by_block(target, "theta"):
                self.metric.update(target, block, self.elementwise, h, time=h, diffusion=diffusion)

    def _step_by_rows(self, target: Target, h: float) -> None:
        """Update all rows, each with its thermostat. Collective."""
        for block in self.gradient.by_block(target, "theta"):
            xi = block.row("xi")
            squares = self.metric.update(target, block, self.kick, h)["square"]
            xi += self._change(squares / block.dimension, h)
            squares = self._apply_friction(target, block, h, xi.astype(np.float64))
            xi += self._change(squares / block.dimension, h)

    def _step_with_shared(self, target: Target, h: float) -> None:
        """Update all rows with one thermostat; blocks are sent after the sums over all blocks.

        Collective.
        """
        gradient = self.gradient
        squares: dict[ParameterBlock, Float64] = {}
        assert isinstance(gradient, PartGradient)
        gradient.begin(target, "theta")
        for cell in target.visit():
            gradient.take(target, cell, "theta")
            for block in cell.blocks:
                squares[block] = self.metric.update(target, block, self.kick, h)["square"]
        self._update_shared(target, squares, h)
        for block in squares:
            xi = np.repeat(self.shared.xi, len(block.counts))
            squares[block] = self._apply_friction(target, block, h, xi)
        self._update_shared(target, squares, h)
        for _ in target.visit(send=True):
            pass
        gradient.finish(target)

    def _apply_friction(
        self, target: Target, block: ParameterBlock, h: float, xi: Float64
    ) -> Float64:
        """Apply friction, noise and the second half of the drift; return |r|^2 of rows, (n,)."""
        x = np.where(xi == 0, 1e-12, xi * h)
        spread = np.sqrt(-self.config.diffusion * h * np.expm1(-2 * x) / x)
        vectors: dict[str, Any] = {
            "damp": np.exp(-x).astype(block.dtype),
            "spread": spread.astype(block.dtype),
        }
        squares: Float64 = self.metric.update(target, block, self.friction, h, **vectors)["square"]
        return squares

    @staticmethod
    def _change(mean_square: Float64, h: float) -> Float64:
        """Change of xi in half a step, given the mean square of its momenta, |r|^2 / d."""
        return 0.5 * h * (mean_square - 1)

    def _update_shared(
        self, target: Target, squares: dict[ParameterBlock, Float64], h: float
    ) -> None:
        """Make half a step of the shared thermostat. Collective."""
        partials = {}
        for block, row_squares in squares.items():
            partials[block] = {
                "square": np.array([row_squares.sum()]),
                "elements": np.array([block["r"].size], np.float64),
            }

        def updated(sums: dict[str, Float64]) -> Named:
            return {"xi": self.shared.xi + self._change(sums["square"] / sums["elements"], h)}

        self.shared.xi = target.sum(partials, updated, {"xi": (1,)})["xi"]
