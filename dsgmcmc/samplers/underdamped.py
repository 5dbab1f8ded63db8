"""Updates of Langevin dynamics with a momentum r ~ N(0, 1), in the coordinates of a metric: what samplers share.

``step`` comes from the metric (`dsgmcmc.samplers.metrics`); ``damp`` is the part of the momentum that an update keeps,
``spread`` the standard deviation of the noise that replaces the rest.
"""

from __future__ import annotations

from dsgmcmc.samplers.base import C, Sampler
from dsgmcmc.samplers.metrics import Metric
from dsgmcmc.targets.base import Target
from dsgmcmc.targets.state import StateField
from dsgmcmc.types import Purpose

#: Kick, half a drift, friction and noise, half a drift [Leimkuhler & Matthews 2013, eq. 1.8, its half kicks joined].
BAOA = """\
kicked = r - step * grad
r = damp * kicked + spread * z
theta = theta + 0.5 * step * (kicked + r)
"""


class Underdamped(Sampler[C]):
    """A sampler whose rows have a momentum, in the coordinates of a metric."""

    metric: Metric

    @property
    def remedy(self) -> str:
        """The other metric."""
        return self.metric.remedy

    @property
    def fields(self) -> tuple[StateField, ...]:
        """Position and momentum, and what the metric keeps."""
        return (StateField("theta"), StateField("r"), *self.metric.fields)

    def start(self, target: Target, sd: float) -> None:
        """Positions N(0, sd^2), momenta N(0, 1)."""
        self.start_field(target, "theta", sd)
        self.start_field(target, "r", 1.0, Purpose.MOMENTUM)
