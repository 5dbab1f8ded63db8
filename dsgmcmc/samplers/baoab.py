r"""Underdamped Langevin dynamics in the Fisher metric, with one full gradient per sweep.

This is the splitting BAOAB of [Leimkuhler & Matthews 2013, eq. 1.8], with its two half kicks
joined, in the coordinates in which the metric P is the identity; docs/baoab.md derives it. The full
gradient is accumulated in one tour of the ring with both factors frozen; then W, H and the biases
move at once.

    r     <- r - h_i P^-1/2 grad U
    r'     = c r + sqrt(1 - c^2) z
    theta <- theta + (h_i / 2) P^-1/2 (r + r'),      r <- r'

For row i and column k of theta, P_ik = tau n_i c_k + lambda_k and h_i = sqrt(2 eps / l_i), where
`dsgmcmc.samplers.metrics` defines n_i, c_k, lambda_k and l_i. Kicks h_i P^-1/2 grad U are clipped
at 5. During burn-in c is at most 0.9, because momenta would otherwise keep the energy of the way
from the start for a hundred sweeps.
"""

from __future__ import annotations

from functools import partial
from math import sqrt
from typing import Any, Literal

from pydantic import Field, model_validator
from typing_extensions import override

from dsgmcmc.samplers.measured_step import MeasuredStep
from dsgmcmc.samplers.metrics import Fisher
from dsgmcmc.samplers.step_policy import DataCounts
from dsgmcmc.samplers.step_size import RisingStep
from dsgmcmc.samplers.underdamped import BAOA, MEASURE_EVERY, Temperatures, Underdamped
from dsgmcmc.targets.base import RowStep, Target

#: Defaults with the Kronecker metric, which is for data and models for which the diagonal metric is
#: not stable.
KRONECKER_DEFAULTS = {"step_size": 0.2, "warm_up": 40}
FIRST_STEP = {"fisher": 0.2857, "kronecker": 0.02}  # as a fraction of the full step
FULL_STEP_RATINGS = 20_000  # with fewer ratings, eps is scaled by the cube root of their number
MAX_STEP_PER_PARAMETER_RATIO = 0.4  # largest eps, divided by the number of ratings per parameter
FRICTION = 0.95  # c if eps is the default and no limit lowers it
BURN_IN_FRICTION = 0.9  # largest c during burn-in


class BAOABConfig(RisingStep):
    """Configuration of BAOAB; `step_size` is eps.

    The Kronecker metric has a smaller default and a slower rise.
    """

    step_size: float = Field(0.35, gt=0, description="eps; 0.2 with the Kronecker metric")
    friction: float = Field(
        0.9,
        ge=0,
        lt=1,
        description=(
            "c, the fraction of the momentum that a sweep keeps, in burn-in at most 0.9; with the"
            " default metric and step, 0.95 if there are at least 20,000 ratings, and at least 0.88"
            " per parameter of the factors"
        ),
    )
    metric: Literal["fisher", "kronecker"] = Field(
        "fisher", description="diagonal, or full over the columns of a row"
    )

    @model_validator(mode="before")
    @classmethod
    def _step_of_metric(cls, settings: Any) -> Any:
        if settings.get("metric") == "kronecker":
            return {**KRONECKER_DEFAULTS, **settings}
        return settings

    @property
    @override
    def first_step(self) -> float:
        return FIRST_STEP[self.metric]


class BAOABSteps(MeasuredStep[BAOABConfig]):
    """Decides about the steps of BAOAB: by the number of data, and by temperatures in burn-in."""

    @classmethod
    @override
    def for_data(cls, config: BAOABConfig, data: DataCounts) -> BAOABConfig:
        """Return the configuration, with unset values chosen from the number of data.

        With fewer than `FULL_STEP_RATINGS` data, eps is proportional to the cube root of their
        number: an average over few rows describes a single row less well, so the row's l_i may be
        too small. eps is also at most `MAX_STEP_PER_PARAMETER_RATIO` times the number of data per
        parameter: the errors of a step add up over all parameters of the factors, and if data are
        few, tau is not determined well enough to resist these errors (docs/baoab.md). If neither
        limit lowers eps, c becomes `FRICTION`. Values that the user has set are not changed. If the
        step size is set, as it is with the Kronecker metric, c is not changed either.
        """
        if "step_size" in config.model_fields_set:
            return config
        eps = config.step_size * min(1.0, (data.n / FULL_STEP_RATINGS) ** (1 / 3))
        eps = min(eps, MAX_STEP_PER_PARAMETER_RATIO * data.per_parameter)
        friction = config.friction
        if eps >= config.step_size and "friction" not in config.model_fields_set:
            friction = FRICTION
        return config.model_copy(update={"step_size": round(eps, 4), "friction": friction})


class BAOAB(Underdamped[BAOABConfig]):
    """Underdamped Langevin dynamics in the Fisher metric.

    Target: the posterior. There is no minibatch noise. The configurational error of BAOAB is
    O(h^2), and vanishes for the mean and variance of a Gaussian at any c. P of a row does not
    depend on the row itself, so it needs no correction; but c_k is recomputed only every
    `REFRESH_EVERY` sweeps. There is no Metropolis correction. Updating W and H in turn would be
    biased and less stable.

    The diagonal metric diverges where the columns of a factor are strongly correlated over its
    rows: without centring, without biases at a large rank, or with a wide fixed prior. Then
    ``metric = "kronecker"`` helps, which uses the full D x D information of a row. The mean squares
    of the momenta show whether steps were small enough (`dsgmcmc.samplers.underdamped`).
    """

    Config = BAOABConfig
    gradients = ("full",)
    Steps = BAOABSteps
    metric: Fisher
    steps: BAOABSteps

    def __init__(self, config: BAOABConfig, burn_in: int) -> None:
        super().__init__(config, burn_in, config.metric)
        self.temperatures = Temperatures()
        self.replicated = (self.metric, self.temperatures, self.steps)
        self.prepare(BAOA)
        if not self.metric.rotates:
            self.moves_from = burn_in

    @override
    def metrics(self) -> dict[str, float]:
        """Temperatures and their standard errors, and the values of the base class."""
        temperatures = self.temperatures.by_field().items()
        values = {f"temperature.{name}": value for name, (value, _) in temperatures}
        errors = {f"temperature_error.{name}": error for name, (_, error) in temperatures}
        return values | errors | super().metrics()

    @override
    def find_divergence(self) -> str:
        """Return the momenta whose mean square is significantly above `DIVERGED_ABOVE`."""
        return self.temperatures.find_divergence()

    @override
    def step(self, target: Target, iteration: int) -> None:
        """Run one sweep: compute the full gradient, then update all rows. Collective."""
        if iteration >= self.burn_in and (iteration - self.burn_in) % MEASURE_EVERY == 0:
            self.temperatures.measure(target, self.metric.rotates)
        if self.metric.is_due(target, iteration):
            self.steps.follow(target, iteration, self.metric.rotates)
        self.metric.refresh(target, iteration, self.steps.needs_bounds)
        h = sqrt(2 * self.step_size(target, iteration))
        c = self.config.friction
        if iteration < self.burn_in:
            c = min(c, BURN_IN_FRICTION)
        half_kick = self.end_step(target, h)
        update = self.both_halves
        if half_kick is not None:
            update = self.second_half
        groups = [*self.gradient(target, "theta", before=half_kick)]
        with target.moving(RowStep(h, c, partial(self.metric.set_prior_share, target))):
            for rows in groups:
                self.metric.update(target, rows, update, h, damp=c, spread=sqrt(1 - c * c))
