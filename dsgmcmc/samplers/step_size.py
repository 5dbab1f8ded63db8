"""Configurations of samplers: the gradient estimator, and the step size of an iteration."""

from __future__ import annotations

from collections.abc import Collection
from typing import Self

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import override

from dsgmcmc.settings import setting


class SamplerConfig(BaseModel):
    """Base of the configurations of all samplers; samplers that take steps extend `StepSize`."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    gradient: str | None = Field(
        None, description="gradient estimator: part, control-variate or full"
    )

    def step(self, iteration: int, grid: int, burn_in: int) -> float:
        """Step size in `iteration`; 1 without steps, so that all draws have equal weights."""
        return 1.0

    def scaled(self, scale: float, fixed: Collection[str] = ()) -> Self:
        """Return the configuration with all step sizes that are not `fixed` times `scale`."""
        return self


class StepSize(SamplerConfig):
    """Base of the configurations with a step size.

    The step is step_size (1 + sweep / decay_sweeps) ** -decay_power.
    """

    step_size: float = setting(
        "Step size, in the sampler's own unit, also during burn-in.",
        shown="0.35 with baoab, less with few ratings; others: docs/settings.md",
        gt=0,
    )
    burn_in_step_size: float | None = Field(
        None, gt=0, description="step during burn-in; by default step_size"
    )
    decay_power: float = Field(
        0.0, ge=0, le=1, description="b in (1 + sweep / a) ** -b, a factor of the step; 0: none"
    )
    decay_sweeps: float = Field(100.0, gt=0, description="a, see decay_power")

    @override
    def step(self, iteration: int, grid: int, burn_in: int) -> float:
        """Step size in `iteration`, in the unit of `step_size`.

        Parameters
        ----------
        iteration : int
            Counted from 0.
        grid : int
            Number of iterations in a sweep.
        burn_in : int
            Number of burn-in iterations.
        """
        size = self.undecayed(iteration, grid, burn_in)
        if self.decay_power:
            sweep = iteration / grid
            size *= (1.0 + sweep / self.decay_sweeps) ** -self.decay_power
        return size

    def undecayed(self, iteration: int, grid: int, burn_in: int) -> float:
        """Step size in `iteration`, without the decay."""
        if iteration < burn_in and self.burn_in_step_size is not None:
            return self.burn_in_step_size
        return self.step_size

    @override
    def scaled(self, scale: float, fixed: Collection[str] = ()) -> Self:
        sizes = {"step_size": self.step_size, "burn_in_step_size": self.burn_in_step_size}
        scaled = {
            name: size * scale
            for name, size in sizes.items()
            if name not in fixed and size is not None
        }
        return self.model_copy(update=scaled)


class TauStep(StepSize):
    """A step in units of the inverse largest number of data of a row, bounded by tau."""

    tau_limit: float | None = setting(
        "largest product of the step and tau; by default set for normal noise if no step is",
        None,
        later=True,
        gt=0,
    )

    @property
    def in_units_of_tau(self) -> bool:
        """Whether the step times tau is relative to the curvature."""
        return True

    def limited(self, size: float, tau: float) -> float:
        """Return the step size, at most `tau_limit` / `tau`.

        Given tau, such a step is constant: draws of rows keep their law and their equal weights.
        """
        if self.tau_limit is None:
            return size
        return min(size, self.tau_limit / tau)

    @override
    def scaled(self, scale: float, fixed: Collection[str] = ()) -> Self:
        scaled = super().scaled(scale, fixed)
        if self.tau_limit is None or "tau_limit" in fixed:
            return scaled
        return scaled.model_copy(update={"tau_limit": self.tau_limit * scale})


class RisingStep(StepSize):
    """A step that rises linearly over the first `warm_up` sweeps, from a fraction of its size."""

    warm_up: int = Field(
        20,
        ge=0,
        description="sweeps in which the step rises to its full size; baoab, kronecker: 40",
    )

    @property
    def first_step(self) -> float:
        """First step, as a fraction of the full step."""
        return 0.1

    @override
    def undecayed(self, iteration: int, grid: int, burn_in: int) -> float:
        size = super().undecayed(iteration, grid, burn_in)
        sweep = iteration / grid
        if sweep < self.warm_up:
            size *= self.first_step + (1.0 - self.first_step) * sweep / self.warm_up
        return size
