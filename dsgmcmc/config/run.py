"""The configuration of a run of a factorisation: that of a chain, and the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, Field, field_validator

from dsgmcmc.config.accuracy import ESS_PER_CHAIN, format_accuracy
from dsgmcmc.config.chain import ChainConfig, ResolvedChain
from dsgmcmc.config.sampler import DEFAULT_SAMPLER
from dsgmcmc.errors import InputError
from dsgmcmc.model.hyperparameters import common_quantities
from dsgmcmc.model.likelihoods import LIKELIHOODS, SYNONYMS, Law
from dsgmcmc.model.noise import heteroscedastic_factors
from dsgmcmc.model.parts import PARTS, PRIOR_MEANS
from dsgmcmc.model.parts.base import chosen_factors
from dsgmcmc.model.parts.features import FeatureSettings
from dsgmcmc.model.parts.implicit import ImplicitSettings
from dsgmcmc.model.parts.time import TimeSettings
from dsgmcmc.model.quantity import Quantities, Quantity, collected, sizes_of
from dsgmcmc.settings import named, setting
from dsgmcmc.types import Factor, NoiseName, PriorName, ThresholdsName

Rank = Annotated[int, Field(ge=1, le=512)]

#: The largest rank that is chosen.
MAX_AUTOMATIC_RANK = 32


def automatic_rank(ratings: int, rows_and_columns: int) -> int:
    """Rank for so many training ratings: at most as many numbers of the factors as ratings, and 1 to 32."""
    return min(max(1, ratings // rows_and_columns), MAX_AUTOMATIC_RANK)


class FactorConfig(BaseModel):
    """What every model has: rank, priors, likelihood and noise."""

    of_densities: ClassVar[bool] = False

    rank: Rank | Literal["auto"] = setting(
        "Number K of latent dimensions.", "auto", shown="auto, from the counts", metavar="K|auto", short="-K"
    )
    prior: PriorName = setting("Prior of the rows of both factors.", "normal-gamma")
    prior_precision: float = setting(
        "Precision of a fixed prior, in the ratings' own unit; start of another.",
        1.0,
        shown="10; 1 with --prior fixed and with the samplers gibbs, psgld, hamcmc and sgld",
        gt=0,
        allow_inf_nan=False,
    )
    likelihood: str = setting(
        "Law of a rating; poisson is of counts, all-cells of clicks.", "gaussian", metavar="|".join(LIKELIHOODS)
    )
    noise: NoiseName = setting("Whose noise differs.", "shared")
    noise_precision: Annotated[float, Field(gt=0, allow_inf_nan=False)] | Literal["sampled"] = setting(
        "Precision of the noise, or sampled.",
        "sampled",
        shown="sampled; 1 with --prior fixed, 30 of clicks",
        metavar="TAU|sampled",
    )
    thresholds: ThresholdsName = setting("Whose thresholds between levels differ.", "shared")
    zero_weight: float | None = setting(
        "Of clicks, what every zero counts beside a click.", None, shown="0.1 with all-cells", gt=0, allow_inf_nan=False
    )
    biases: bool = setting("User and item biases.", True)
    center: bool = setting("Subtract the training mean.", True)
    standardise: bool = setting(
        "Priors in units of the ratings' sd, or as published.",
        True,
        shown="yes; no with --prior fixed",
        metavar="yes|no",
    )
    hyper_start: int = setting("Sweeps before the first draw of the hyperparameters.", 1, offered=False, ge=0)
    hyper_every: int = setting("Sweeps between draws of the hyperparameters.", 1, offered=False, ge=1)

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


class ModelConfig(TimeSettings, FeatureSettings, ImplicitSettings, FactorConfig):
    """The model, with the settings of its parts; those of the last base come first."""


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
        if found.interleaved and self.law.has_parameters():
            raise InputError(
                f"{self.sampler.name} interleaves several states, and the parameters of {self.likelihood} would "
                f"need one set for each: use another {named('sampler')}"
            )
        for part in PARTS:
            part.check(found)
        return found

    def _check_law(self) -> None:
        """Refuse what the likelihood does not have, or cannot be sampled with."""
        self.law.check(self)
        kind, estimator = self.sampler.kind, self.sampler.kind.estimator(self.sampler.config)
        if estimator.by_parts and not self.law.is_sum_over_ratings():
            full = f" or {named('sampler.gradient')}=full" if "full" in kind.gradients else ""
            raise InputError(
                f"{self.sampler.name} goes by parts of the ratings, and with the {self.likelihood} likelihood every "
                f"cell counts: use {named('sampler')} {DEFAULT_SAMPLER} or gibbs{full}"
            )
        if kind.draws_conditionals and not self.law.is_conditionally_gaussian():
            raise InputError(
                f"{named('sampler')} {self.sampler.name} draws from normal laws, which rows do not have with the "
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

    @property
    def interleaved(self) -> bool:
        """Whether the sampler advances several chains in turns."""
        return len(self.make_sampler().positions) > 1

    @property
    def times(self) -> tuple[str, ...]:
        """Names of the levels of time."""
        return () if self.time_levels == "no" else tuple(self.time_levels.split(","))

    def quantities_of_law(self, transposed: bool) -> tuple[Quantity, ...]:
        """What is sampled of the likelihood."""
        own = chosen_factors(self.thresholds, transposed)
        return self.law.quantities_of(heteroscedastic_factors(self.noise, transposed), *own)

    def quantities(self, transposed: bool, features: Mapping[Factor, tuple[int, int]], levels: int) -> Quantities:
        """Everything that the model keeps.

        Parameters
        ----------
        transposed : bool
            Whether the rows of W are items.
        features : dict of Factor to (int, int)
            Number of features of the rows of a factor, and of their groups, where there are any.
        levels : int
            Levels of the ratings, where there are any.
        """
        noisy = heteroscedastic_factors(self.noise, transposed) if self.law.has_noise else ()
        means, others = (
            [quantity for part in parts for quantity in part.quantities_of(self, transposed, features)]
            for parts in (PRIOR_MEANS, [part for part in PARTS if part not in PRIOR_MEANS])
        )
        return collected(
            common_quantities(self.prior, noisy),
            self.quantities_of_law(transposed),
            means,
            others,
            sizes_of(self.dimension, levels, len(self.times), features),
        )
