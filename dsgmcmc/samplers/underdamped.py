"""Updates of Langevin dynamics with a momentum r ~ N(0, 1), in the coordinates of a metric; a base for samplers.

In the formulas, ``step`` comes from the metric (`dsgmcmc.samplers.metrics`), ``damp`` is the fraction of the momentum
that an update keeps, and ``spread`` is the standard deviation of the noise that replaces the rest.

A kick consists of the half that ends a step and the half that begins the next. Hyperparameters drawn between gradient
and update should change the second half alone: they are drawn given the position, and the momentum at the end of the
first half must be independent of it. Shared parameters move little in a sweep, so the halves are usually joined. They
are made separately in iterations that change the data, where the second half has a new gradient, and in iterations that
draw prior means of single rows: when halves were joined and implicit features drawn every 3 sweeps, predictions were
too wide by a tenth.
"""

from __future__ import annotations

from collections.abc import Callable

from dsgmcmc.kernels.formula import Formula
from dsgmcmc.samplers.base import C, Sampler
from dsgmcmc.samplers.metrics import Metric
from dsgmcmc.targets.base import Target
from dsgmcmc.targets.state import Rows, StateField
from dsgmcmc.types import Purpose

#: Kick, half a drift, friction and noise, half a drift [Leimkuhler & Matthews 2013, eq. 1.8, its half kicks joined].
BAOA = """\
kicked = r - step * grad
r = damp * kicked + spread * z
theta = theta + 0.5 * step * (kicked + r)
"""
#: The kick in the source of an update.
KICK = "step * grad"
#: Kicks are clipped. At the posterior a kick's sd is below h, which is 0.84 at the default step, so the bound only
#: matters during burn-in and in the tails: a row pushed back by a steep energy stays near, instead of going to where
#: the next row's kick is far larger still.
CLIPPED = f"minimum(maximum({KICK}, -5.0), 5.0)"


class Underdamped(Sampler[C, Target]):
    """Base class of samplers whose rows have a momentum, in the coordinates of a metric."""

    metric: Metric

    def prepare(self, lines: str) -> None:
        """Make the formulas of an update from its source: with the whole kick, and with the half kicks separate."""
        make = self.metric.formula
        self.first_half = make(f"r = r - 0.5 * {CLIPPED}\n")
        self.whole, self.second_half = (make(lines.replace(KICK, kick)) for kick in (CLIPPED, f"0.5 * {CLIPPED}"))

    def update_of(self, half: bool) -> Formula:
        """Return the update with the whole kick, or with only its second half."""
        return self.second_half if half else self.whole

    def halves(self, target: Target) -> bool:
        """Whether this iteration makes the half kicks separately."""
        return not self.gradient.by_parts and (target.renews_data or target.renews_prior)

    def end_step(self, target: Target, h: float) -> Callable[[Rows], None] | None:
        """Return the half kick that ends the previous step if halves are separate, else None."""

        def kick(rows: Rows) -> None:
            self.metric.kick(target, rows, self.first_half, h)

        return kick if self.halves(target) else None

    @property
    def fields(self) -> tuple[StateField, ...]:
        """Position, momentum, and the fields of the metric."""
        return (StateField("theta"), StateField("r"), *self.metric.fields)

    def start(self, target: Target, sd: float) -> None:
        """Positions N(0, sd^2), momenta N(0, 1)."""
        self.start_field(target, "theta", sd)
        self.start_field(target, "r", 1.0, Purpose.MOMENTUM)
