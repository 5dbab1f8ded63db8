"""Decisions about the steps of a sampler."""

from __future__ import annotations

from collections.abc import Collection
from typing import Generic, TypeVar

from dsgmcmc.samplers.step_size import SamplerConfig
from dsgmcmc.targets.state import Replicated

C = TypeVar("C", bound=SamplerConfig)


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
    def for_data(cls, config: C, n_data: int, per_parameter: float) -> C:
        """Return the configuration, with unset values chosen from the number of data.

        `per_parameter` is the number of data per parameter of the factors.
        """
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
