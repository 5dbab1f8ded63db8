r"""Stochastic gradient Riemannian Langevin dynamics in the Fisher metric.

[Patterson 2013; Ma 2015, eq. 14]

    theta <- theta - eps_i P^-1 grad U~ + N(0, 2 eps_i P^-1),       eps_i = eps / l_i

where `dsgmcmc.samplers.metrics` defines P and l_i. The correction Gamma for a metric that depends
on the state, which [Ma 2015, eq. 14] prints with the wrong sign inside its bracket, is zero here:
the metric of a row depends only on the other factor, and both factors move at once.

[Patterson 2013] S. Patterson, Y. W. Teh: Stochastic gradient Riemannian Langevin dynamics on the
probability simplex.
"""

from __future__ import annotations

from math import sqrt
from typing import Literal

from pydantic import Field
from typing_extensions import override

from dsgmcmc.samplers.step_size import RisingStep
from dsgmcmc.samplers.underdamped import MetricSampler
from dsgmcmc.targets.base import Target

#: With the metric's step = h_i P^-1/2, h_i^2 = 2 eps_i.
UPDATE = "theta = theta - 0.5 * step * step * grad + step * z\n"
CORRECTED = """\
spread = sqrt(1 - 0.25 * parts * h_i * h_i * p)
theta = theta - 0.5 * step * step * grad + step * spread * z
"""


class SGRLDConfig(RisingStep):
    """Configuration of SGRLD; `step_size` is eps."""

    step_size: float = Field(0.03, gt=0, description="eps; the step of a row is eps / l")
    metric: Literal["fisher", "kronecker"] = Field(
        "fisher", description="diagonal, or full over the columns of a row"
    )
    noise_correction: bool = Field(
        False,
        description=(
            "add less noise, because gradients have noise, too; only with independent parts"
        ),
    )


class SGRLD(MetricSampler[SGRLDConfig]):
    """Stochastic gradient Riemannian Langevin dynamics.

    ``noise_correction`` subtracts the variance of the gradient noise from the variance of the added
    noise. In the metric, it is (B - 1) p_ik on average, for independent parts, where p_ik is the
    share of the data in P. The added noise is then N(0, (2 eps_i - eps_i^2 (B - 1) p_ik) / P_ik). A
    step at which its variance becomes negative shows as divergence.

    Target: the posterior, up to the noise of the parts' gradients and O(eps). In a direction of
    precision lambda in the metric, with independent noise of variance V, from which the correction
    removes B^, Var theta is (1 + eps (V - B^) / 2) / (1 - eps lambda / 2) in units of the target's
    variance. There is no Metropolis correction, and none for the lag of P by up to `REFRESH_EVERY`
    sweeps.
    """

    Config = SGRLDConfig
    gradients = ("part", "full", "control-variate")
    draws_data = True

    def __init__(self, config: SGRLDConfig, burn_in: int) -> None:
        super().__init__(config, burn_in, config.metric)
        source = UPDATE
        if config.noise_correction:
            source = CORRECTED
        self.update = self.metric.formula(source)

    @override
    def step(self, target: Target, iteration: int) -> None:
        self.metric.refresh(target, iteration)
        h = sqrt(2 * self.step_size(target, iteration))
        parts = float(target.sweep_length - 1)
        for rows in self.gradient(target, "theta"):
            self.metric.update(target, rows, self.update, h, parts=parts)
