"""Decisions about the steps of a sampler."""

from __future__ import annotations

from typing import Generic, TypeVar

from dsgmcmc.samplers.step_size import SamplerConfig
from dsgmcmc.targets.state import Replicated

C = TypeVar("C", bound=SamplerConfig)


class StepPolicy(Replicated, Generic[C]):
    """Decides about the steps of a chain: here they follow from the configuration alone.

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

    @property
    def halved_at(self) -> int | None:
        """Iteration since which the step has been half of the configured step; None if never."""
        return None

    def size(self, iteration: int, sweep_length: int) -> float:
        """Step size in `iteration`, in the configuration's unit."""
        return self.config.step(iteration, sweep_length, self.burn_in)
