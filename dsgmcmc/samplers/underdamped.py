"""Base classes of samplers that step in the coordinates of a metric, and temperatures of momenta.

The momenta of underdamped Langevin dynamics are N(0, 1) in the coordinates of a metric, for any
target. In the formulas, ``step`` comes from the metric (`dsgmcmc.samplers.metrics`), ``damp`` is
the fraction of the momentum that an update keeps, and ``spread`` is the standard deviation of the
noise that replaces the rest.

A temperature is the mean square of momenta, which is 1 if the chain samples its target. For a
quadratic energy, BAOAB preserves the momenta's distribution at every stable step size, as measured
right after the noise of a step. Half a kick later, their variance in a direction of curvature l is
1 - h^2 l / 4. If a step is too large for the energy's higher-order terms, the temperature is above
1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import log2, sqrt
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from dsgmcmc.samplers.base import C, Sampler
from dsgmcmc.samplers.measured_step import DIVERGED_ABOVE, squared_momenta
from dsgmcmc.samplers.metrics import METRICS, MOMENTUM
from dsgmcmc.targets.base import Target
from dsgmcmc.targets.state import Replicated, Rows, StateField
from dsgmcmc.types import Float64

#: Kick, half a drift, friction and noise, half a drift [Leimkuhler & Matthews 2013, eq. 1.8, its
#: half kicks joined].
BAOA = """\
kicked = r - step * grad
r = damp * kicked + spread * z
theta = theta + 0.5 * step * (kicked + r)
"""
#: The kick in the source of an update.
KICK = "step * grad"
#: Kicks are clipped. At the posterior, a kick's sd is below h, which is 0.84 at the default step,
#: so that the bound matters only during burn-in and in the tails. There, a row that a steep energy
#: pushes back stays near, instead of moving to where the kicks of other rows are larger still.
CLIPPED = f"minimum(maximum({KICK}, -5.0), 5.0)"


class MetricSampler(Sampler[C, Target]):
    """Base class of samplers that step in the coordinates of a metric, and refresh the metric.

    Parameters
    ----------
    config : SamplerConfig
    burn_in : int
    metric : str
        A key of `dsgmcmc.samplers.metrics.METRICS`.
    """

    defaults: ClassVar[dict[str, Any]] = {
        "prior_precision": 10.0,
        "initial_sd": 0.14,
        "hyper_start": 15,
    }
    #: Fields that a step moves; the metric has further fields.
    moving: ClassVar[tuple[str, ...]] = ("theta",)

    def __init__(self, config: C, burn_in: int, metric: str) -> None:
        super().__init__(config, burn_in)
        self.metric = METRICS[metric]()
        self.replicated = (self.metric,)
        self.scratch = self.metric.scratch

    @property
    @override
    def fields(self) -> tuple[StateField, ...]:
        """Position, momentum if the sampler has one, and the fields of the metric."""
        return (*(StateField(name) for name in self.moving), *self.metric.fields)


class Underdamped(MetricSampler[C]):
    """Base class of samplers whose rows have a momentum, in the coordinates of a metric.

    A kick consists of the half that ends a step and the half that begins the next step.
    Hyperparameters that are drawn between gradient and update should change the second half alone:
    they are drawn given the position, and the momentum at the end of the first half must be
    independent of the position. Shared parameters move little in a sweep, so the halves are usually
    joined. They are separate in iterations that change the data, where the second half has a new
    gradient, and in iterations that draw prior means of single rows: with joined halves, and
    implicit features drawn every 3 sweeps, predictions were too wide by a tenth.
    """

    moving = ("theta", MOMENTUM)
    momentum = MOMENTUM

    def prepare(self, lines: str) -> None:
        """Make the formulas of an update from its source: with joined and with separate half kicks.

        Separate kicks are `first_half`, which ends a step, and the one in `second_half`.
        """
        formula = self.metric.formula
        self.both_halves = formula(lines.replace(KICK, CLIPPED))
        self.first_half = formula(f"r = r - 0.5 * {CLIPPED}\n")
        self.second_half = formula(lines.replace(KICK, f"0.5 * {CLIPPED}"))

    def end_step(self, target: Target, h: float) -> Callable[[Rows], None] | None:
        """Return the half kick that ends the previous step, or None if half kicks are joined."""
        if self.gradient.by_parts or not (target.renews_data or target.renews_prior):
            return None
        return lambda rows: self.metric.kick(target, rows, self.first_half, h)


# ---------------------------------------------------------------------- temperatures

#: Momenta are measured every `MEASURE_EVERY` sweeps, after which they are nearly independent. No
#: chain counts as divergent before `MIN_MEASUREMENTS` measurements.
MEASURE_EVERY = 20
MIN_MEASUREMENTS = 10

NAME = "temperature.{}"


@dataclass
class Temperatures(Replicated):
    """Sums of squared momenta, over the latest measurements after burn-in.

    A chain that is still moving towards its posterior also has a high temperature: if tau rises,
    for example, momenta gain the energy that positions lose. So early measurements are discarded:
    measurements are summed in the groups 1, 2 to 3, 4 to 7, 8 to 15, ..., and the last two groups
    are used.

    Attributes
    ----------
    sums : dict of str to (2, 2) float64
        For every name in `Target.momenta`, such as ``W.biases``, the sum of squares and the number
        of terms, of the last group and of the group before it.
    measurements : (1,) float64
        Number of measurements so far.
    """

    saved_as: ClassVar[dict[str, str]] = {"measurements": "temperature.measurements"}

    sums: dict[str, Float64] = field(default_factory=dict)
    measurements: Float64 = field(default_factory=lambda: np.zeros(1))

    @override
    def arrays(self) -> dict[str, Float64]:
        return super().arrays() | {NAME.format(name): sums for name, sums in self.sums.items()}

    @override
    def take(self, arrays: Mapping[str, Float64]) -> None:
        super().take(arrays)
        prefix = NAME.format("")
        for name, array in arrays.items():
            if array.shape == (2, 2) and name.startswith(prefix):
                self.sums[name.removeprefix(prefix)] = array

    def measure(self, target: Target, rotated: bool = False) -> None:
        """Measure the current momenta; `rotated` as in `squared_momenta`. Collective."""
        totals = squared_momenta(target, rotated)
        self.measurements = self.measurements + 1
        begins_group = log2(self.measurements[0]).is_integer()
        for name, sums in totals.items():
            last, before = self.sums.get(name, np.zeros((2, 2)))
            if begins_group:
                self.sums[name] = np.array([sums, last])
            else:
                self.sums[name] = np.array([last + sums, before])

    def by_field(self) -> dict[str, tuple[float, float]]:
        """The temperature of the momenta of every name in `sums`, and its standard error.

        The error assumes N(0, 1) momenta that are independent between measurements.
        """
        totals = {name: sums.sum(axis=0) for name, sums in self.sums.items()}
        return {name: (s / n, sqrt(2 / n)) for name, (s, n) in totals.items() if n}

    def find_divergence(self) -> str:
        """Return a description of momenta whose temperature shows divergence, or ``""``."""
        if self.measurements[0] < MIN_MEASUREMENTS:
            return ""
        for name, (temperature, error) in self.by_field().items():
            if not temperature - 4 * error <= DIVERGED_ABOVE:
                factor, _, owner = name.rpartition(".")
                if factor:
                    owner = f"the {owner} of {factor}"
                return f"the momenta of {owner} have the temperature {temperature:.3g} instead of 1"
        return ""
