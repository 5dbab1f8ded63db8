"""The configuration of a run of a factorisation: that of a chain, and the model."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, Field, field_validator

from dsgmcmc.config.accuracy import ESS_PER_CHAIN, format_accuracy
from dsgmcmc.config.chain import ChainConfig, ResolvedChain
from dsgmcmc.config.sampler import DEFAULT_SAMPLER
from dsgmcmc.errors import InputError
from dsgmcmc.model.likelihoods import LIKELIHOODS, SYNONYMS, Law
from dsgmcmc.model.time.levels import canonical
from dsgmcmc.types import FeaturesName, ImplicitName, NoiseName, PriorName, RowScalesName, ThresholdsName

Rank = Annotated[int, Field(ge=1, le=512)]

#: The largest rank that is chosen.
MAX_AUTOMATIC_RANK = 32


def automatic_rank(ratings: int, rows_and_columns: int) -> int:
    """Rank for so many training ratings: at most as many numbers of the factors as ratings, and 1 to 32."""
    return min(max(1, ratings // rows_and_columns), MAX_AUTOMATIC_RANK)


class ModelConfig(BaseModel):
    """The model: rank, priors, likelihood and noise."""

    of_densities: ClassVar[bool] = False

    rank: Rank | Literal["auto"] = Field("auto", description="number K of latent dimensions")
    prior: PriorName = "normal-gamma"
    prior_precision: float = Field(
        1.0,
        gt=0,
        allow_inf_nan=False,
        description="of a fixed prior, in the ratings' unit; else where it starts",
    )
    likelihood: str = Field("gaussian", description="law of a rating")
    implicit_features: ImplicitName = Field("no", description="whose prior means depend on whom or what they rated")
    features: FeaturesName = Field("yes", description="which features of the ratings shift the rows' prior means")
    row_scales: RowScalesName = Field("no", description="whose rows have precisions of their own around their means")
    time_levels: str = Field("no", description="whose ratings share effects when they were given together")
    noise: NoiseName = "shared"
    noise_precision: float | Literal["sampled"] = "sampled"
    thresholds: ThresholdsName = Field("shared", description="whose thresholds between levels differ")
    zero_weight: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="of clicks: what a zero counts beside a one; default 0.1"
    )
    biases: bool = True
    center: bool = True
    standardise: bool = Field(True, description="priors are in units of the ratings' sd, and not as published")
    hyper_start: int = Field(1, ge=0, description="sweeps before the first draw of the hyperparameters")
    hyper_every: int = Field(1, ge=1, description="sweeps between draws of the hyperparameters")
    model_version: Literal[1, 2, 3] = Field(
        3,
        description="2: metrics keep tau and priors of their last refresh; 1: as in version 0.1, nu is drawn given the "
        "noise scales, too, and steps are bounded on the average",
    )

    @field_validator("noise_precision")
    @classmethod
    def _positive(cls, value: float | str) -> float | str:
        if isinstance(value, float) and not 0 < value < float("inf"):
            raise ValueError("must be positive, or 'sampled'")
        return value

    @field_validator("time_levels")
    @classmethod
    def _levels(cls, value: str) -> str:
        return canonical(value)

    @field_validator("likelihood")
    @classmethod
    def _known(cls, value: str) -> str:
        value = SYNONYMS.get(value, value)
        if value not in LIKELIHOODS:
            raise ValueError(f"is not known; choose one of {', '.join([*LIKELIHOODS, *SYNONYMS])}")
        return value

    @property
    def law(self) -> type[Law]:
        """The likelihood's class."""
        return LIKELIHOODS[self.likelihood]


class RunConfig(ModelConfig, ChainConfig):
    """What is asked for of a run: see `dsgmcmc.config.chain`. A source chooses the rank that is left to it."""

    def default_until(self) -> str:
        """See `ChainConfig.default_until`: of predictions, so a density has none."""
        return format_accuracy({"ess": ESS_PER_CHAIN * self.chains})

    def resolved(self, processes: int = 1, finest: int | None = None) -> ResolvedConfig:
        """Resolve it; see `ChainConfig.plain`."""
        self._check_law()
        rank = MAX_AUTOMATIC_RANK if self.rank == "auto" else self.rank
        found = ResolvedConfig.of({**self.plain(processes, finest), "rank": rank})
        interleaved = len(found.make_sampler().positions) > 1
        if interleaved and self.law.has_parameters():
            raise InputError(
                f"{self.sampler.name} interleaves several states, and the parameters of {self.likelihood} would "
                "need one set for each: use another --sampler"
            )
        if self.implicit_features != "no":
            if self.prior == "normal-wishart":
                raise InputError("implicit features need a diagonal prior: --prior normal-gamma or fixed")
            if interleaved:
                raise InputError(
                    f"implicit features are not drawn for the interleaved sub-chains of {self.sampler.name}: use "
                    "another --sampler, or --implicit-features no"
                )
        if self.row_scales != "no" and interleaved:
            raise InputError(
                f"row scales are not drawn for the interleaved sub-chains of {self.sampler.name}: use another "
                "--sampler, or --row-scales no"
            )
        if self.time_levels != "no":
            self._check_time(interleaved)
        return found

    def _check_time(self, interleaved: bool) -> None:
        """Refuse levels of time where effects cannot be drawn."""
        if not (self.law.is_sum_over_ratings() and self.law.is_conditionally_gaussian()):
            raise InputError(
                f"effects of time are drawn from normal laws, which they do not have with the {self.likelihood} "
                "likelihood: leave out time_levels"
            )
        if interleaved or self.sampler.kind.estimator(self.sampler.config).fixed_likelihood:
            raise InputError(
                f"effects of time change the ratings that {self.sampler.name} remembers gradients of: use another "
                "--sampler or sampler.gradient, or --time-levels no"
            )

    def _check_law(self) -> None:
        """Refuse what the likelihood does not have, or cannot be sampled with."""
        self.law.check(self)
        kind, estimator = self.sampler.kind, self.sampler.kind.estimator(self.sampler.config)
        if estimator.by_parts and not self.law.is_sum_over_ratings():
            full = " or --set sampler.gradient=full" if "full" in kind.gradients else ""
            raise InputError(
                f"{self.sampler.name} goes by parts of the ratings, and with the {self.likelihood} likelihood every "
                f"cell counts: use --sampler {DEFAULT_SAMPLER} or gibbs{full}"
            )
        if kind.draws_conditionals and not self.law.is_conditionally_gaussian():
            raise InputError(
                f"--sampler {self.sampler.name} draws from normal laws, which rows do not have with the "
                f"{self.likelihood} likelihood: choose a sampler that steps along gradients, such as {DEFAULT_SAMPLER}"
            )
        if estimator.fixed_likelihood and (self.noise != "shared" or not self.law.has_noise):
            raise InputError(
                f"sampler.gradient: {self.sampler.config.gradient} keeps a gradient of the likelihood, which noise "
                "scales or thresholds would change: leave out noise and likelihood, or take another gradient"
            )


class ResolvedConfig(ModelConfig, ResolvedChain):
    """A configuration of a run in plain numbers."""

    rank: Rank

    @property
    def dimension(self) -> int:
        """Columns D of a factor."""
        return self.rank + int(self.biases)
