"""The configuration of a run on ratings: the settings of its chains and of its model.

`collect` merges settings from options, a TOML file and ``NAME=VALUE``; `build` checks
settings, and adds defaults that depend on other settings.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, Field, ValidationInfo, create_model, field_validator
from typing_extensions import override

from dsgmcmc.config.chain import AUTO, DEFAULT_SAMPLER, ChainConfig, ResolvedChain, section_of
from dsgmcmc.errors import InputError
from dsgmcmc.model.likelihoods import LIKELIHOODS, Law, LikelihoodSettings
from dsgmcmc.model.log_scale import on_scale
from dsgmcmc.model.parts import PARTS, Part, PartSettings
from dsgmcmc.model.parts.base import FileFacts, ModelFacts, SamplerFacts
from dsgmcmc.model.quantity import Quantities, sizes_of
from dsgmcmc.model.transform import Scale
from dsgmcmc.orientation import Orientation
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.format import SIDES
from dsgmcmc.samplers import SAMPLERS
from dsgmcmc.settings import named, setting
from dsgmcmc.storage.files import read_toml
from dsgmcmc.types import Factor

T = TypeVar("T", bound=BaseModel)

Rank = Annotated[int, Field(ge=0, le=512)]

#: The largest rank that is chosen automatically.
MAX_AUTOMATIC_RANK = 32

#: Sampler for models in which the metric of the default sampler may be unstable.
ROBUST_SAMPLER = "psgld"

#: Burn-in with the default sampler; docs/evidence/dropped.md gives the reasons.
BURN_IN = "50sweeps"


def automatic_rank(ratings: int, rows_and_columns: int) -> int:
    """Return a rank from 1 to 32.

    Above rank 1, the factors have at most one element per training rating.
    """
    return min(max(1, ratings // rows_and_columns), MAX_AUTOMATIC_RANK)


def feature_sizes(ratings: Ratings) -> dict[Factor, tuple[int, int]]:
    """Return the numbers of features and of feature groups, by factor whose rows have features."""
    return {
        Factor(SIDES.index(side)): (len(stored.names), len(set(stored.groups)))
        for side, stored in ratings.features.items()
    }


class FactorConfig(BaseModel):
    """Settings of every model."""

    rank: Rank | Literal["auto"] = setting(
        "Number K of latent dimensions; 0: biases only. Spare ones shrink, cost time, and"
        " widen intervals of expected values by some per cent.",
        "auto",
        shown="auto, chosen by the number of ratings",
        metavar="K|auto",
        short="-K",
    )
    likelihood: str = setting(
        "Distribution of a rating; student-t: heavy tails, negative-binomial: counts, all-cells:"
        " clicks.",
        "gaussian",
        metavar="|".join(LIKELIHOODS),
    )
    scale: Scale = setting(
        "Model ratings, or their logarithms: log, amounts and counts above 0; log1p, counts with"
        " zeros.",
        "identity",
        metavar="identity|log|log1p",
        later=True,
    )
    biases: bool = setting("Include user and item biases.", True)
    center: bool = setting("Subtract the mean of the training ratings.", True, offered=False)
    hyper_start: int = setting(
        "First sweep that draws hyperparameters.",
        1,
        shown="15; gibbs: 4; psgld, hamcmc, sgld: 1",
        offered=False,
        ge=0,
    )

    @field_validator("likelihood")
    @classmethod
    def _check_likelihood(cls, value: str) -> str:
        if value not in LIKELIHOODS:
            raise ValueError(f"is not known; choose one of {', '.join(LIKELIHOODS)}")
        return value

    @field_validator("biases")
    @classmethod
    def _check_not_empty(cls, value: bool, info: ValidationInfo) -> bool:
        if not value and info.data.get("rank") == 0:
            raise ValueError(
                f"a model with {named('rank')} 0 has only biases: leave out {named('no_biases')},"
                f" or give {named('rank')} 1 or more, which the all-cells likelihood needs"
            )
        return value

    @property
    def law(self) -> type[Law]:
        """The class of the likelihood, on the scale of the run."""
        return on_scale(LIKELIHOODS[self.likelihood], self.scale)


class ModelConfig(PartSettings, LikelihoodSettings, FactorConfig):
    """Settings of the model, its likelihood and its parts.

    The fields of the last base class come first.
    """

    @property
    def draws_noise_scales(self) -> bool:
        """Whether rows have noise scales that are drawn given the ratings' squared errors."""
        return self.noise != "shared" and self.law.has_noise and not self.law.draws_precision

    @property
    def couples_noise(self) -> bool:
        """Whether these scales multiply the precision of the rows' priors, too."""
        return self.coupled_noise and self.draws_noise_scales

    @classmethod
    def complete(cls) -> type[Self]:
        """Return this class with the settings of all parts and likelihoods, also of a script."""
        declared = dict.fromkeys(part.Settings for part in (*LIKELIHOODS.values(), *PARTS.values()))
        missing = [settings for settings in declared if not issubclass(cls, settings)]
        return _extended(cls, tuple(missing))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the values alone.

        The other process makes the class from the parts and likelihoods that are registered there.
        """
        return _restored, (type(self).__name__, dict(self))


@functools.cache
def _extended(config: type[T], more: tuple[type[BaseModel], ...]) -> type[T]:
    """Return a configuration class with the fields of further settings."""
    if not more:
        return config
    bases: Any = (*more, config)
    extended: type[T] = create_model(config.__name__, __base__=bases)
    return extended


def _restored(name: str, values: dict[str, Any]) -> object:
    """Make a configuration that was pickled."""
    return globals()[name].complete().model_construct(**values)


class RunConfig(ModelConfig, ChainConfig):
    """Requested settings of the chains and the model of a run.

    `RatingsSource` chooses the rank if it is ``auto``.
    """

    def resolved(self, processes: int = 1, finest: int | None = None) -> ResolvedConfig:
        """Return the resolved configuration.

        Parameters and errors are as for `ChainConfig.plain`.
        """
        self._refuse_unused()
        self._refuse_unsupported_sampler()
        rank = MAX_AUTOMATIC_RANK if self.rank == "auto" else self.rank
        config = ResolvedConfig.from_settings({**self.plain(processes, finest), "rank": rank})
        config.check()
        return config

    def _refuse_unused(self) -> None:
        """Refuse settings that the likelihood does not use, unless they have neutral values."""
        unused = self.law.unused_settings()
        wrong = [name for name, value in unused.items() if getattr(self, name) != value]
        if not self.law.has_noise and self.noise_precision == "sampled":
            wrong.append("noise_precision")
        if wrong:
            raise InputError(
                f"the {self.likelihood} likelihood has no use for {named(wrong[0])}: leave it out"
            )

    def _refuse_unsupported_sampler(self) -> None:
        """Refuse a sampler that cannot sample the likelihood, or not with the chosen gradient."""
        algorithm = self.sampler.algorithm
        estimator = algorithm.estimator(self.sampler.config)
        if estimator.by_parts and not self.law.is_sum_over_ratings:
            alternatives = f"{named('sampler')} {DEFAULT_SAMPLER} or gibbs"
            if "full" in algorithm.gradients:
                alternatives += f" or {named('sampler.gradient')}=full"
            raise InputError(
                f"{self.sampler.name} uses only a part of the ratings at a time, but the"
                f" {self.likelihood} likelihood needs every pair of a user and an item: use"
                f" {alternatives}"
            )
        if algorithm.draws_conditionals and not self.law.has_normal_rows():
            raise InputError(
                f"{named('sampler')} {self.sampler.name} needs normal conditional distributions of"
                f" rows, which the {self.likelihood} likelihood does not give: use a sampler with"
                f" gradients, such as {DEFAULT_SAMPLER}"
            )
        likelihood_is_fixed = (
            self.noise == "shared" and self.law.has_noise and not self.law.has_parameters()
        )
        if estimator.fixed_likelihood and not likelihood_is_fixed:
            raise InputError(
                f"sampler.gradient: {self.sampler.config.gradient} reuses a gradient of the"
                " likelihood, which noise scales and thresholds would change: leave out"
                f" {named('noise')} and {named('likelihood')}"
            )


class ResolvedConfig(ModelConfig, ResolvedChain):
    """A resolved configuration of a run."""

    rank: Rank

    @property
    def dimension(self) -> int:
        """Number D of columns of a factor, with the column of the biases."""
        return self.rank + int(self.biases)

    @property
    def rounding_bounds_noise(self) -> bool:
        """Whether rounding bounds the noise of ratings with a step (`dsgmcmc.model.rounding`).

        It does not if the noise is fixed or not in the unit of the ratings. That of logarithms is
        not bounded, because the rounding of a large rating changes its logarithm by almost nothing.
        """
        if self.noise_precision != "sampled" or self.scale != "identity":
            return False
        return self.law.has_noise and self.law.is_linear

    @property
    def facts(self) -> ModelFacts:
        """What parts of the model know of the run besides their own settings."""
        section = self.sampler
        sampler = self.make_sampler()
        return ModelFacts(
            rank=self.rank,
            biases=self.biases,
            likelihood=self.likelihood,
            law=self.law,
            noise=self.noise,
            coupled_noise=self.couples_noise,
            prior_precision=self.prior_precision,
            sampler=SamplerFacts(
                name=section.name,
                interleaved=self.interleaved > 1,
                keeps_gradients=section.algorithm.estimator(section.config).fixed_likelihood,
                draws_conditionals=section.algorithm.draws_conditionals,
                moves_parts=sampler.moves_from is not None,
            ),
        )

    @property
    def part_types(self) -> tuple[type[Part[Any]], ...]:
        """The classes of the likelihood and of all other parts."""
        return (self.law, *PARTS.values())

    def check(self) -> None:
        """Refuse settings that cannot be combined.

        Raises
        ------
        InputError
            The message names the setting to change.
        """
        facts = self.facts
        if facts.sampler.interleaved and self.law.has_parameters():
            raise InputError(
                f"{self.sampler.name} interleaves several states, each of which would need its own"
                f" parameters of the {self.likelihood} likelihood: use another {named('sampler')}"
            )
        for part in self.part_types:
            part.check(self, facts)
        if self.implicit_features != "no" and self.prior == "normal-wishart":
            raise InputError(
                f"implicit features need a diagonal prior: {named('prior')} normal-gamma or fixed"
            )

    def check_ratings(self, ratings: Ratings) -> None:
        """Refuse a ratings file that lacks the data of a part.

        Raises
        ------
        InputError
            The message names the data, or the setting to change.
        """
        self._refuse_measurements(ratings)
        facts = self.facts
        for part in self.part_types:
            part.check_ratings(self, facts, ratings)
        if ratings.has_bounds and self.time_levels != "no":
            raise InputError(
                f"{ratings.path} has ratings that are known to lie within bounds, with which"
                f" effects of time cannot be combined: leave out {named('time_levels')}"
            )

    def _refuse_measurements(self, ratings: Ratings) -> None:
        """Refuse weights and bounds of ratings if the likelihood does not take them."""
        chosen = f"{named('likelihood')} {self.likelihood}"
        if ratings.mean_weight is not None and not self.law.takes_weights:
            usable = [name for name, law in LIKELIHOODS.items() if law.takes_weights]
            raise InputError(
                f"{ratings.path} has weights, the relative precisions of its ratings, which"
                f" {chosen} does not take: use {' or '.join(usable)}, or prepare the ratings"
                " without weights"
            )
        if ratings.has_bounds and not self.law.takes_bounds:
            usable = [name for name, law in LIKELIHOODS.items() if law.takes_bounds]
            raise InputError(
                f"{ratings.path} has measurements that are known to lie within bounds, which"
                f" {chosen} does not take: use {' or '.join(usable)}"
            )

    @property
    @override
    def unused(self) -> set[str]:
        """Settings that are neither stored nor hashed where a run does not use them.

        They are those of registered parts, and those that were added later.
        """
        fields = type(self).model_fields
        registered = fields.keys() - ResolvedConfig.model_fields
        unused = {name for name in registered if getattr(self, name) == fields[name].default}
        return unused | super().unused

    @property
    def model_settings(self) -> list[str]:
        """Names of the settings of the model."""
        return [name for name in type(self).model_fields if name not in ChainConfig.model_fields]

    @property
    def registered(self) -> list[str]:
        """Assignments by which a script registers those classes of this run that are its own."""
        used: list[tuple[str, str, type]] = [
            ("SAMPLERS", self.sampler.name, self.sampler.algorithm),
            ("LIKELIHOODS", self.likelihood, self.law),
        ]
        for name, part in PARTS.items():
            if part.Settings.model_fields.keys() - self.unused:
                used.append(("PARTS", name, part))
        return [
            f'{registry}["{name}"] = {registered.__qualname__}'
            for registry, name, registered in used
            if not registered.__module__.startswith("dsgmcmc.")
        ]

    def quantities_for(self, ratings: Ratings) -> Quantities:
        """Return the quantities of the model for a ratings file."""
        levels = self.law.levels_of(ratings)
        n_levels = 0 if levels is None else len(levels)
        return self.quantities(ratings.orientation, feature_sizes(ratings), n_levels)

    def quantities(
        self, orientation: Orientation, features: Mapping[Factor, tuple[int, int]], levels: int
    ) -> Quantities:
        """Return the quantities of the model: all arrays that it keeps.

        Parameters
        ----------
        orientation : Orientation
            Which factor's rows stand for users.
        features : dict of Factor to (int, int)
            Number of features and number of groups of features, for every factor whose rows have
            features.
        levels : int
            Number of levels of the ratings; 0 without levels.
        """
        facts = self.facts
        file = FileFacts(orientation, features)
        union = dict.fromkeys(
            quantity
            for part in self.part_types
            for quantity in part.quantities_of(self, facts, file)
        )
        sizes = sizes_of(self.dimension, levels, features, {"time_level": len(self.times)})
        return Quantities(tuple(union), sizes)


# ---------------------------------------------------------------------- layers of settings


def collect(
    *layers: Mapping[str, Any], config_file: Path | None = None, assignments: Sequence[str] = ()
) -> dict[str, Any]:
    """Merge the settings that a user gives, as `merged` does.

    Parameters
    ----------
    *layers : mapping of str to object
        Options of the command line, or arguments in Python.
    config_file : Path, optional
        TOML file; other settings override its settings.
    assignments : sequence of str, optional
        Values ``NAME=VALUE`` of ``--set``; they override all others.

    Raises
    ------
    InputError
        If the file cannot be read, or an assignment is malformed.
    """
    settings_of_file = {}
    if config_file:
        settings_of_file = read_toml(config_file)
    return merged(settings_of_file, *layers, parse_assignments(assignments))


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Merge settings; later layers take precedence.

    Hyphens in names are read as underscores, and settings named ``sampler.NAME`` are those of the
    sampler's section. A layer that names a different sampler drops the sampler settings of earlier
    layers. Sampler settings in a layer belong to the sampler that the layer or an earlier one
    names, or else to the default sampler. The result has no name if the last name is ``auto``.
    """
    result: dict[str, Any] = {}
    for layer in layers:
        section = _underscored(section_of(layer.get("sampler") or {}))
        settings = {}
        for name, value in _underscored(layer).items():
            owner, _, own_name = name.rpartition(".")
            if owner == "sampler":
                section[own_name] = value
            else:
                settings[name] = value
        earlier = result.get("sampler", {})
        if section.get("name") == AUTO:
            del section["name"]
            if "name" in earlier:
                earlier = {}
        name = earlier.get("name", DEFAULT_SAMPLER)
        if section.get("name", name) == name:
            section = earlier | section
        result |= {**settings, "sampler": section}
    return result


def build(*layers: Mapping[str, Any]) -> RunConfig:
    """Merge layers of settings for a factorisation, add defaults, and check all.

    Later layers take precedence. The defaults are those that depend on other settings.

    Raises
    ------
    InputError
        If any setting is wrong; the message names all of them.
    """
    requested = merged(*layers)
    law = LIKELIHOODS.get(str(requested.get("likelihood")))
    settings = requested
    if law:
        settings = merged(law.defaults, requested)
    settings["sampler"].setdefault("name", _default_sampler(settings))
    if settings.get("prior") == "fixed":
        # the published model: its step sizes suit ratings that are not standardised
        settings = {"noise_precision": 1.0, "prior_precision": 1.0, "standardise": False} | settings
    if settings.get("standardise") is False and (law is None or law.has_noise):
        settings.setdefault("prior", "normal-gamma")
    if law:
        settings.setdefault("standardise", law.has_noise)
    if settings["sampler"]["name"] == DEFAULT_SAMPLER:
        settings.setdefault("burn_in", BURN_IN)
    sampler = SAMPLERS.get(settings["sampler"]["name"])
    defaults = sampler.defaults if sampler else {}
    of_run = {name: value for name, value in defaults.items() if name in RunConfig.model_fields}
    return RunConfig.from_settings(of_run | settings)


def _default_sampler(settings: Mapping[str, Any]) -> str:
    """Return the default sampler: BAOAB, unless its diagonal metric may be unstable.

    The metric may be unstable if the factors must explain a common mean, or have a wide prior:
    without biases, without centring, or with a fixed prior. All three cases diverged on MovieLens
    1M. If the user sets ``sampler.metric``, the default is BAOAB in all cases, because PSGLD has no
    such setting.
    """
    stable = (
        settings.get("biases", True)
        and settings.get("center", True)
        and settings.get("prior") != "fixed"
    )
    has_metric = "metric" in settings["sampler"]
    return DEFAULT_SAMPLER if stable or has_metric else ROBUST_SAMPLER


def _underscored(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with underscores for hyphens in their names."""
    return {str(name).replace("-", "_"): value for name, value in settings.items()}


def parse_assignments(assignments: Sequence[str]) -> dict[str, Any]:
    """Parse ``NAME=VALUE`` and ``sampler.NAME=VALUE``; a value that is not TOML is a plain string.

    Raises
    ------
    InputError
        If an assignment has no ``=``.
    """
    settings: dict[str, Any] = {}
    for text in assignments:
        name, equals, raw = text.partition("=")
        if not equals:
            raise InputError(
                f"--set {text}: expected NAME=VALUE, for example --set sampler.alpha=0.95"
            )
        settings[name.strip()] = _parse_value(raw)
    return settings


def _parse_value(text: str) -> object:
    """Return the value that a text has in TOML, or else the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text
