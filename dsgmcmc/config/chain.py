"""The configuration of a chain and its sampler, for any target: as requested, and as resolved.

A requested configuration may have lengths in sweeps, and may lack a grid or a thinning interval. A
resolved configuration has all values, with lengths in iterations. Processes use the resolved
configuration, ``run.toml`` stores it, and its hash identifies the chains.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)

from dsgmcmc.config.units import (
    ESS_PER_CHAIN,
    format_accuracy,
    parse_accuracy,
    parse_length,
    parse_time,
)
from dsgmcmc.errors import InputError
from dsgmcmc.samplers import SAMPLERS
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.samplers.gradients import GRADIENTS
from dsgmcmc.samplers.step_size import SamplerConfig
from dsgmcmc.settings import Checked, explain, named, setting, short_repr, unchanged_later
from dsgmcmc.targets.state import MAX_ITERATIONS
from dsgmcmc.types import ScheduleName

if TYPE_CHECKING:
    from dsgmcmc.storage.rundir import Facts, RunDirectory

#: Settings that may change when a run is resumed, because no draw depends on them.
CHANGEABLE = ("iterations", "until", "checkpoint_every", "chains")

#: Number of checkpoints that a chain keeps, in addition to the one at the end of burn-in.
KEPT_CHECKPOINTS = 2

#: Default number of iterations without a target accuracy.
DEFAULT_LENGTH = "700sweeps"
#: Default maximum with a target accuracy.
DEFAULT_LIMIT = "5000sweeps"

#: Name of the choice by a rule on settings and ratings (`dsgmcmc.runs.source`). A section without a
#: name leaves the choice to the rule, too.
AUTO = "auto"
#: The sampler that suits most ratings.
DEFAULT_SAMPLER = "baoab"

#: Names of samplers and gradient estimators that only `dsgmcmc.densities` has. If one is chosen for
#: ratings, the message can say so.
SAMPLERS_OF_DENSITIES = (
    "mh",
    "hmc",
    "mala",
    "smh1",
    "smh2",
    "austerity",
    "stochastic_mh",
    "modified_stochastic_mh",
    "gsgrhmc",
    "gsgrld",
    "matrix_sgnht",
    "adjusted_sgld",
)
GRADIENTS_OF_DENSITIES = (
    "saga",
    "importance",
    "importance-saga",
    "adaptive",
    "adaptive-stored",
    "adaptive-published",
)

Length = int | str  # iterations, or for example "500sweeps"


class SamplerSection(BaseModel):
    """A sampler's section in a settings file: its name and its configuration.

    Attributes
    ----------
    name : str
        A key of `samplers`.
    config : SamplerConfig
        Configuration, an instance of the sampler's class `Config`.
    """

    model_config = ConfigDict(frozen=True)

    #: The samplers that may be chosen, by name.
    samplers: ClassVar[Mapping[str, type[Sampler[Any, Any]]]] = SAMPLERS
    #: Names that a rule replaces with the name of a sampler.
    rules: ClassVar[tuple[str, ...]] = (AUTO,)
    #: Whether gradient estimators that draw single data may be chosen.
    draws_data: ClassVar[bool] = False

    name: str
    config: SamplerConfig

    @classmethod
    def parse(cls, requested: object) -> Self:
        """Check a section; a plain name stands for the defaults of the sampler.

        Parameters
        ----------
        requested : object
            Name, section, or checked section.

        Raises
        ------
        ValueError
            If the sampler is not known or not allowed, or its settings are wrong.
        """
        if type(requested) is cls:
            return requested
        settings = section_of(requested)
        name = settings.pop("name", DEFAULT_SAMPLER)
        algorithm = cls._algorithm_named(name)
        gradient = settings.get("gradient")
        if gradient == algorithm.gradients[0]:  # an explicit default must not change the hash
            del settings["gradient"]
        elif not cls.draws_data and _is_of_densities(gradient):
            raise ValueError(
                f"sampler.gradient {gradient!r} is only for densities that are sums over data"
            )
        try:
            return cls(name=name, config=algorithm.Config(**settings))
        except ValidationError as error:
            raise ValueError(explain(error, "sampler.")) from error

    @property
    def algorithm(self) -> type[Sampler[Any, Any]]:
        """The class of the sampler."""
        return self.samplers[self.name]

    @classmethod
    def _algorithm_named(cls, name: object) -> type[Sampler[Any, Any]]:
        """Return the class of a sampler; raise `ValueError` if it may not be chosen."""
        if isinstance(name, str) and name in cls.samplers:
            return cls.samplers[name]
        problem = "is not known"
        if name in SAMPLERS_OF_DENSITIES:
            problem = "samples only densities"
        choices = ", ".join([*cls.rules, *cls.samplers])
        raise ValueError(f"sampler {short_repr(name)} {problem}; choose one of {choices}")

    @model_serializer
    def _flat(self) -> dict[str, Any]:
        return {"name": self.name, **self.config.model_dump(exclude=unchanged_later(self.config))}


def _is_of_densities(gradient: object) -> bool:
    """Whether a gradient estimator draws single data, which only densities have."""
    if not isinstance(gradient, str):
        return False
    if gradient in GRADIENTS_OF_DENSITIES:
        return True
    return gradient in GRADIENTS and GRADIENTS[gradient].draws_data


def section_of(sampler: object) -> dict[str, Any]:
    """Return a copy of the sampler section; a plain name stands for a section with this name.

    Raises
    ------
    InputError
        If `sampler` is neither a name nor a section, or the section has a name that is not text.
    """
    if isinstance(sampler, str):
        return {"name": sampler}
    if isinstance(sampler, SamplerSection):  # of another run
        return sampler.model_dump()
    if not isinstance(sampler, Mapping) or not isinstance(sampler.get("name", ""), str):
        raise InputError(
            f"sampler must be a name or a section with settings (found {short_repr(sampler)})"
        )
    return dict(sampler)


class ChainConfig(Checked):
    """Requested settings of a chain: all settings that do not describe the target.

    Lengths may be given in iterations, as a number, or in sweeps, as ``"500sweeps"``.
    """

    #: Class of the sampler's section.
    Section: ClassVar[type[SamplerSection]] = SamplerSection

    sampler: SamplerSection = setting(
        "Sampling algorithm; its settings are named sampler.NAME.",
        shown=(
            "auto: baoab; gibbs where it is expected to be faster; psgld without biases or"
            " centring, or if the prior is fixed"
        ),
        metavar="|".join([AUTO, *SAMPLERS]),
    )
    grid: int | None = setting(
        "Number B of blocks of rows, and also of columns.",
        None,
        shown="4; 2P with P > 4 processes per chain",
        ge=1,
        le=32767,
    )
    schedule: ScheduleName = setting(
        "Order in which parts of the data are visited.",
        "shuffled",
        shown="shuffled; random with sgnht",
        offered=False,
    )
    initial_sd: float = setting(
        "Standard deviation of the factors' initial values.",
        0.1,
        shown="0.14; gibbs, psgld, hamcmc, sgld: 0.1",
        offered=False,
        gt=0,
    )
    seed: int = setting("Seed of all random numbers.", 0, ge=0, lt=2**63)
    chains: int = setting("Number of independent chains.", 1, ge=1, le=65536)
    iterations: Length | None = setting(
        "Number of iterations, burn-in included; e.g. 2000 or 500sweeps.",
        None,
        shown=f"at most {DEFAULT_LIMIT} with a target accuracy (until), else {DEFAULT_LENGTH}",
        metavar="LENGTH",
    )
    until: str | None = setting(
        "Stop once 90 % of the monitored predictions have reached this R-hat or effective sample"
        " size.",
        None,
        shown="ess=100 per chain; none with --iterations",
        metavar="rhat=R,ess=N",
    )
    burn_in: Length = setting(
        "Initial iterations to discard.",
        "100sweeps",
        shown="50sweeps with baoab, else 100sweeps",
        metavar="LENGTH",
    )
    thin: Length | None = setting(
        "Iterations between draws.", None, shown="2sweeps, rounded; 1 with gibbs", metavar="LENGTH"
    )
    evaluate_every: Length = setting(
        "Iterations between successive lines of metrics.", "10sweeps", offered=False
    )
    checkpoint_every: int | str = setting(
        "Time or iterations between checkpoints; e.g. 1h.", "10min", metavar="LENGTH"
    )
    save_draws: int = setting(
        "Minimum number of draws that a chain saves; with 0, the run cannot predict.", 50, ge=0
    )

    @field_validator("iterations", "burn_in", "thin", "evaluate_every")
    @classmethod
    def _check_length(cls, value: Length | None) -> Length | None:
        if value is not None:
            parse_length(value, sweep=1)  # raises an error
        return value

    @field_validator("until")
    @classmethod
    def _normalise_accuracy(cls, value: str | None) -> str | None:
        if value in (None, "none"):
            return value
        return format_accuracy(parse_accuracy(str(value)))

    @field_validator("checkpoint_every")
    @classmethod
    def _check_interval(cls, value: int | str) -> int | str:
        if isinstance(value, str) and value.isdigit():
            value = int(value)
        if isinstance(value, str) and parse_time(value) is None:
            raise ValueError(
                "must be a number of iterations, or a time like '90s', '10min' or '1h'"
            )
        if isinstance(value, int) and value < 1:
            raise ValueError("must be at least 1")
        return value

    @model_validator(mode="before")
    @classmethod
    def _check_sampler(cls, data: Any) -> Any:
        sampler = cls.Section.parse(data.get("sampler", DEFAULT_SAMPLER))
        return {**data, "sampler": sampler}

    def plain(self, processes: int = 1, finest: int | None = None) -> dict[str, Any]:
        """Choose missing values, and return all settings with lengths in iterations, checked.

        If neither a target accuracy nor a number of iterations is given, the target accuracy of
        chains on ratings is an ESS of `ESS_PER_CHAIN` per chain, unless this ESS cannot be reached
        or measured.

        Parameters
        ----------
        processes : int
            Largest number of processes that share a chain, on which the default grid depends.
        finest : int, optional
            Largest grid that the data admit; the default grid is not larger.

        Returns
        -------
        dict
            All settings, for the constructor of the resolved configuration.

        Raises
        ------
        InputError
            If the settings are incompatible.
        """
        until = self._target_accuracy()
        if until == "none":
            return self._plain(processes, finest, None)
        plain = self._plain(processes, finest, until)
        reason = self._why_unreachable(plain)
        if not reason:
            return plain
        if self.until:
            raise InputError(f"{named('until')} {until}: {reason}")
        return self._plain(processes, finest, None)

    def _target_accuracy(self) -> str:
        """Return the requested or the default target accuracy; "none" without one."""
        if self.until:
            return self.until
        if self.iterations is not None:
            return "none"
        return format_accuracy({"ess": ESS_PER_CHAIN * self.chains})

    def _why_unreachable(self, plain: Mapping[str, Any]) -> str:
        """Explain why the target accuracy cannot be reached or measured; empty if it can."""
        iterations = plain["iterations"]
        burn_in = plain["burn_in"]
        draws = max(0, iterations - burn_in) // plain["thin"]
        if parse_accuracy(plain["until"]).get("ess", 0) > draws * self.chains:
            return (
                f"{iterations:,} iterations give at most {draws:,} draws per chain: raise"
                f" {named('iterations')}, or lower {named('thin')}"
            )
        config = self.sampler.config
        sweep = self.sampler.algorithm.sweep_length(config, plain["grid"])
        if config.step(burn_in, sweep, burn_in) != config.step(iterations - 1, sweep, burn_in):
            return (
                "the step changes after burn-in (sampler.warm_up or decay), so draws have unequal"
                f" weights, but R-hat and ESS need equal weights: raise {named('burn_in')}, or give"
                f" {named('until')} none"
            )
        return ""

    def _plain(self, processes: int, finest: int | None, until: str | None) -> dict[str, Any]:
        """Return all settings as `plain` does, with `until` as the target accuracy."""
        sampler = self.sampler.algorithm
        config = self.sampler.config
        grid = self.grid or _default_grid(processes, finest)
        sweep = sampler.sweep_length(config, grid)
        length = self.iterations
        if length is None:
            length = DEFAULT_LIMIT if until else DEFAULT_LENGTH
        thin = self.thin
        if thin is None:
            thin = sampler.default_thin(config, grid)
        lengths = {
            "iterations": parse_length(length, sweep),
            "burn_in": parse_length(self.burn_in, sweep),
            "thin": parse_length(thin, sweep),
            "evaluate_every": parse_length(self.evaluate_every, sweep),
        }
        for name in ("iterations", "thin", "evaluate_every"):
            if lengths[name] < 1:
                raise InputError(f"{named(name)} must be at least 1")
        sampler.check(config, self.schedule, grid, lengths["thin"])
        return {**dict(self), "grid": grid, "until": until, **lengths}


def _default_grid(processes: int, finest: int | None) -> int:
    """Return the grid of a chain on some processes; not larger than `finest`, if it is known."""
    grid = 4 if processes <= 4 else 2 * processes
    if finest:
        return min(grid, finest)
    return grid


class ResolvedChain(ChainConfig):
    """A resolved configuration of a chain: all fields have values, lengths are in iterations."""

    grid: int = Field(ge=1, le=32767)
    iterations: int = Field(ge=1, le=MAX_ITERATIONS)
    burn_in: int = Field(ge=0)
    thin: int = Field(ge=1)
    evaluate_every: int = Field(ge=1)

    #: Whether the chains sample a density, and not a model of ratings.
    samples_density: ClassVar[bool] = False

    @classmethod
    def of_run(cls, run: RunDirectory) -> tuple[Self, Facts]:
        """Read the configuration of a run, and its facts.

        Raises
        ------
        InputError
            If ``run.toml`` is damaged, or its settings have changed since it was written, or the
            run is of another kind.
        """
        settings, facts = run.read_settings()
        if cls.samples_density and "density" not in facts:
            raise InputError(f"{run.path} is a run on ratings, and not one of a density")
        if "density" in facts and not cls.samples_density:
            raise InputError(
                f"{run.path} has chains of the density {facts['density']}, and no ratings:"
                " sample_density(..., out=, resume=True) returns its draws"
            )
        try:
            config = cls.from_settings(settings)
        except InputError as error:
            message = f"{run.settings_file}: {error}"
            registered = facts.get("registered", [])
            if registered:
                lines = "".join(f"\n  {line}" for line in registered)
                message += (
                    "\nThe run uses classes of a script; register them before you open the run:"
                    + lines
                )
            raise InputError(message) from error
        if facts.get("config_hash", config.hash()) != config.hash():
            raise InputError(
                f"{run.settings_file} {config._difference(settings)}: its settings do not match its"
                " config_hash. Undo the change, or start another run with these settings"
            )
        return config, facts

    def _difference(self, stored: Mapping[str, Any]) -> str:
        """Say in which settings a file, whose hash is that of others, differs from a whole one."""
        table = self.table()
        section = section_of(stored.get("sampler") or {})
        lacking = [name for name in table if name not in stored]
        lacking += [f"sampler.{name}" for name in table["sampler"] if name not in section]
        if lacking:
            return f"lacks {', '.join(lacking)}, and has been changed, or is of another version"
        return "has been changed since the run was sampled"

    @property
    def sweep_length(self) -> int:
        """Number of iterations in a sweep, which uses all data once."""
        return self.sampler.algorithm.sweep_length(self.sampler.config, self.grid)

    @property
    def first_draw(self) -> int:
        """Iteration of the first draw; a run that ends earlier cannot predict."""
        return self.burn_in + self.thin

    @property
    def accuracy_limits(self) -> dict[str, float]:
        """Limits of the target accuracy by measure; empty without a target accuracy."""
        if not self.until:
            return {}
        return parse_accuracy(self.until)

    def make_sampler(self) -> Sampler[Any, Any]:
        """Make the sampler."""
        return self.sampler.algorithm(self.sampler.config, self.burn_in)

    @property
    def interleaved(self) -> int:
        """Number of states that the sampler advances in turns, to which draws belong in turns."""
        return len(self.make_sampler().positions)

    def checkpoint_interval(self) -> tuple[int | None, float | None]:
        """Return the iterations and the seconds between checkpoints; one of the two is None."""
        if isinstance(self.checkpoint_every, int):
            return self.checkpoint_every, None
        return None, parse_time(self.checkpoint_every)

    @property
    def unused(self) -> set[str]:
        """Settings that are neither stored nor hashed."""
        return unchanged_later(self)

    def table(self) -> dict[str, Any]:
        """Return the settings by name, with values of TOML's types.

        Settings without a value are left out.
        """
        settings = _without_none(self.model_dump(exclude=self.unused))
        settings["sampler"] = _without_none(settings["sampler"])
        return settings

    def hash(self) -> str:
        """Return the SHA-256 of the settings on which the draws depend."""
        content = self.model_dump(exclude={*CHANGEABLE, *self.unused})
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _without_none(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}
