"""Decisions about the steps of a sampler."""

from __future__ import annotations

from collections.abc import Collection
from typing import Generic, NamedTuple, TypeVar

from typing_extensions import override

from dsgmcmc.samplers.step_size import SamplerConfig, TauStep
from dsgmcmc.targets.state import Replicated

C = TypeVar("C", bound=SamplerConfig)

#: Largest default step in units of 1 / (tau n), for the mean number n of data of a row, where that
#: is at least `EVEN` times the largest number. Elsewhere most rows have relative steps as small.
RELATIVE_STEP = 0.05
EVEN = 0.5


class DataCounts(NamedTuple):
    """What a default step is chosen from.

    Attributes
    ----------
    n : int
        Number of data.
    per_parameter : float
        Number of data per parameter of the factors.
    evenness : float
        Mean number of data of a row, or of a column if that is larger, over the largest number; 0
        if the curvature is no multiple of tau.
    """

    n: int
    per_parameter: float
    evenness: float


class StepPolicy(Replicated, Generic[C]):
    """Decides about the steps of a sampler.

    Class methods choose the configuration: for the data, and after divergence. An instance decides
    about the iterations of a chain; here their steps follow from the configuration alone. What it
    decides by the state of the chain is replicated, and saved in checkpoints.

    Parameters
    ----------
    config : SamplerConfig
        Configuration of the sampler.
    burn_in : int
        Number of burn-in iterations.

    Attributes
    ----------
    may_halve : bool
        Whether the chain may use half of the configured step. It is false by default, and if the
        user has chosen the step.
    """

    def __init__(self, config: C, burn_in: int) -> None:
        self.config = config
        self.burn_in = burn_in
        self.may_halve = False

    # ------------------------------------------------------------------ the configuration

    @classmethod
    def for_data(cls, config: C, data: DataCounts) -> C:
        """Return the configuration, with unset values chosen from the number of data."""
        return config

    @classmethod
    def after_divergence(cls, config: C, fixed: Collection[str]) -> dict[str, C]:
        """Return the configurations to try if a chain diverges, in order, by names for messages.

        Settings that the user has `fixed` are not changed.
        """
        if "step_size" in fixed:
            return {}
        half = config.scaled(0.5, fixed)
        if half == config:
            return {}
        return {"half the step": half, "a quarter of the step": config.scaled(0.25, fixed)}

    # ------------------------------------------------------------------ the iterations

    @property
    def halved_at(self) -> int | None:
        """Iteration since which the step has been half of the configured step; None if never."""
        return None

    def size(self, iteration: int, sweep_length: int) -> float:
        """Step size in `iteration`, in the configuration's unit."""
        return self.config.step(iteration, sweep_length, self.burn_in)


class BelowTau(StepPolicy[TauStep]):
    """Bounds the default step by tau where most rows have as many data as the largest."""

    @classmethod
    @override
    def for_data(cls, config: TauStep, data: DataCounts) -> TauStep:
        """Return the configuration, with `tau_limit` unless a step is set."""
        if {"step_size", "tau_limit"} & config.model_fields_set:
            return config
        if data.evenness < EVEN or not config.in_units_of_tau:
            return config
        return config.model_copy(update={"tau_limit": round(RELATIVE_STEP / data.evenness, 4)})
