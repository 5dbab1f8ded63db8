"""Decisions about the step of an underdamped sampler while a chain runs.

The temperature T of a field is the mean square of its momenta, 1 at the posterior (docs/baoab.md).
It is somewhat above 1 while the chain moves towards its posterior, and several times as large if
the step is too large. So the step is halved in burn-in if a temperature is above `HALVED_ABOVE`.
From then on, as long as a temperature is above `DIVERGED_ABOVE`, the bounds l_i are computed at
every refresh of the metric: on the usual schedule, they follow a growing curvature too late.
"""

from __future__ import annotations

from math import sqrt
from typing import ClassVar, TypeVar

import numpy as np
from typing_extensions import override

from dsgmcmc.samplers.metrics import MOMENTUM
from dsgmcmc.samplers.step_policy import StepPolicy
from dsgmcmc.samplers.step_size import StepSize
from dsgmcmc.targets.base import Target
from dsgmcmc.types import Float64

S = TypeVar("S", bound=StepSize)

#: First sweep of burn-in whose momenta are measured. Before it, they tell how the chain started.
FIRST_MEASURED = 10
#: The step is halved if a temperature is above this bound by four standard errors. With normal
#: noise, chains whose step was right stayed below it, on 30 shapes of ratings and on MovieLens.
#: Scales of Student-t noise exceed it for a few sweeps at a right step, too.
HALVED_ABOVE = 4.0
#: A chain has diverged if, after burn-in, a temperature is above this bound by more than four
#: standard errors.
DIVERGED_ABOVE = 1.3


def squared_momenta(target: Target, rotated: bool) -> dict[str, Float64]:
    """Sum of squares and number of the momenta of every name in `Target.momenta`, (2,) each.

    Collective.

    With `rotated`, the momenta belong to rotated axes, as in `Target.momenta`.
    """
    fields = target.momenta(MOMENTUM, rotated)
    partials = {block: dict.fromkeys(fields, np.zeros(2)) for block in target.blocks()}
    for block in target.blocks():
        for name, momenta in fields.items():
            if momenta.factor == block.factor:
                chosen = block[momenta.field][:, momenta.columns]
                square = np.square(chosen).sum(dtype=np.float64)
                partials[block][name] = np.array([square, chosen.size])
    return target.sum(partials, dict, dict.fromkeys(fields, (2,)))


class MeasuredStep(StepPolicy[S]):
    """Halves the configured step in burn-in if temperatures show that it is too large.

    The decision depends on the state alone, which is replicated and saved.

    Attributes
    ----------
    halved : (1,) float64
        Value of `halved_at`; -1 for None.
    hottest : (1,) float64
        Largest temperature of a field less four standard errors, at the latest measurement.
    """

    saved_as: ClassVar[dict[str, str]] = {"halved": "step.halved", "hottest": "step.hottest"}

    def __init__(self, config: S, burn_in: int) -> None:
        super().__init__(config, burn_in)
        self.halved: Float64 = np.full(1, -1.0)
        self.hottest: Float64 = np.zeros(1)

    @property
    @override
    def halved_at(self) -> int | None:
        if self.halved[0] < 0:
            return None
        return int(self.halved[0])

    @property
    def needs_bounds(self) -> bool:
        """Whether the l_i are computed at the next refresh of the metric, whatever its schedule."""
        return self.halved_at is not None and bool(self.hottest[0] > DIVERGED_ABOVE)

    @override
    def size(self, iteration: int, sweep_length: int) -> float:
        size = super().size(iteration, sweep_length)
        if self.halved_at is not None:
            size /= 2
        return size

    def follow(self, target: Target, iteration: int, rotated: bool) -> None:
        """Measure the momenta if that is due, and halve the step if they are too hot. Collective.

        Called before every refresh of the metric, so that momenta are in the coordinates of the
        gradient that moved them. With `rotated`, the momenta belong to rotated axes.
        """
        if not self.may_halve or not self._is_due(iteration):
            return
        sums = squared_momenta(target, rotated).values()
        bounds = [square / n - 4 * sqrt(2 / n) for square, n in sums if n]
        self.hottest = np.array([max(bounds, default=0.0)])
        if self.halved_at is None and self.hottest[0] > HALVED_ABOVE:
            self.halved = np.array([float(iteration)])

    def _is_due(self, iteration: int) -> bool:
        """Whether momenta are measured: in burn-in, and later while l_i are computed again."""
        if iteration < self.burn_in:
            return iteration >= FIRST_MEASURED
        return self.needs_bounds
