"""The configuration of a run of a factorisation: that of a chain, and the model."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field, field_validator

from dsgmcmc.config.chain import ChainConfig, ResolvedChain
from dsgmcmc.errors import InputError
from dsgmcmc.targets.factorisation.likelihoods import LIKELIHOODS, Likelihood
from dsgmcmc.types import NoiseName, PriorName


class ModelConfig(BaseModel):
    """The model: rank, priors, likelihood and noise."""

    rank: int = Field(32, ge=1, le=512, description="number K of latent dimensions")
    prior: PriorName = "normal-gamma"
    prior_precision: float = Field(1.0, gt=0, allow_inf_nan=False)
    likelihood: str = Field("gaussian", description="law of a rating")
    noise: NoiseName = "shared"
    noise_precision: float | Literal["sampled"] = "sampled"
    biases: bool = True
    center: bool = True
    hyper_start: int = Field(1, ge=0, description="sweeps before the first draw of the hyperparameters")
    hyper_every: int = Field(1, ge=1, description="sweeps between draws of the hyperparameters")

    @field_validator("noise_precision")
    @classmethod
    def _positive(cls, value: float | str) -> float | str:
        if isinstance(value, float) and not 0 < value < float("inf"):
            raise ValueError("must be positive, or 'sampled'")
        return value

    @field_validator("likelihood")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in LIKELIHOODS:
            raise ValueError(f"is not known; choose one of {', '.join(LIKELIHOODS)}")
        return value

    @property
    def law(self) -> type[Likelihood]:
        """The likelihood's class."""
        return LIKELIHOODS[self.likelihood]

    @property
    def dimension(self) -> int:
        """Columns D of a factor."""
        return self.rank + int(self.biases)


class RunConfig(ModelConfig, ChainConfig):
    """What is asked for of a run: see `dsgmcmc.config.chain`."""

    def resolved(self, processes: int = 1) -> ResolvedConfig:
        """Resolve it; see `ChainConfig.plain`."""
        if not self.law.has_noise and (self.noise_precision, self.noise) != (1.0, "shared"):
            raise InputError(f"the {self.likelihood} likelihood has no noise: leave out noise and noise_precision")
        return ResolvedConfig.of(self.plain(processes))


class ResolvedConfig(ModelConfig, ResolvedChain):
    """A configuration of a run in plain numbers."""
