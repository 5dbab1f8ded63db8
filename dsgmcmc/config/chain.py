"""The configuration of a chain and its sampler, for any target, as the user requests it and as
resolved.

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
from dsgmcmc.samplers import SAMPLERS, for_ratings
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.samplers.gradients import DATUM_GRADIENTS
from dsgmcmc.samplers.step_size import SamplerConfig
from dsgmcmc.settings import named, setting
from dsgmcmc.targets.state import MAX_ITERATIONS
from dsgmcmc.types import ScheduleName

if TYPE_CHECKING:
    from dsgmcmc.storage.rundir import Facts, RunDirectory

#: Settings that may change when a run is resumed, because no draw depends on them.
CHANGEABLE = ("iterations", "until", "checkpoint_every", "chains")

#: Number of checkpoints that a chain keeps, in addition to the one at the end of burn-in.
KEPT_CHECKPOINTS = 2

#: Default number of iterations without a target accuracy, and default maximum with a target
#: accuracy.
DEFAULT_LENGTH, DEFAULT_LIMIT = "700sweeps", "5000sweeps"

#: The default sampler.
DEFAULT_SAMPLER = "baoab"

Length = int | str  # iterations, or for example "500sweeps"

MAX_SHOWN_CHARACTERS = 80  # of a wrong value in an error message


class SamplerSection(BaseModel):
    """A sampler's section in a settings file: its name and its configuration.

    Attributes
    ----------
    name : str
        A key of `dsgmcmc.samplers.SAMPLERS`.
    config : SamplerConfig
        Configuration, an instance of the sampler's class `Config`.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    config: SamplerConfig

    @classmethod
    def of(cls, given: Any, for_density: bool = True) -> Self:
        """Check a section; a plain name stands for the defaults of the sampler.

        Parameters
        ----------
        given : object
            Name, section, or checked section.
        for_density : bool
            Whether the target is a density, so that samplers of densities alone are also allowed.

        Raises
        ------
        ValueError
            If the sampler is not known or not allowed, or its settings are wrong.
        """
        if isinstance(given, cls):
            return given
        section = section_of(given)
        name = section.pop("name", DEFAULT_SAMPLER)
        allowed = list(SAMPLERS) if for_density else for_ratings()
        kind = SAMPLERS.get(name) if isinstance(name, str) else None
        if kind is None or name not in allowed:
            problem = "is not known" if kind is None else "samples only densities"
            raise ValueError(
                f"sampler {_short_repr(name)} {problem}; choose one of {', '.join(allowed)}"
            )
        if (
            section.get("gradient") == kind.gradients[0]
        ):  # an explicit default must not change the hash
            del section["gradient"]
        if section.get("gradient") in DATUM_GRADIENTS and not for_density:
            raise ValueError(
                f"sampler.gradient {section['gradient']!r} is only for densities that are sums over"
                " data"
            )
        try:
            return cls(name=name, config=kind.Config(**section))
        except ValidationError as error:
            raise ValueError(explain(error, "sampler.")) from error

    @property
    def kind(self) -> type[Sampler[Any, Any]]:
        """The class of the sampler."""
        return SAMPLERS[self.name]

    @model_serializer
    def _flat(self) -> dict[str, Any]:
        return {"name": self.name, **self.config.model_dump()}


def section_of(given: Any) -> dict[str, Any]:
    """Return a copy of the sampler section as a dict; a plain name stands for a section with this
    name.

    Raises
    ------
    InputError
        If `given` is neither a name nor a section, or the section has a name that is not text.
    """
    if isinstance(given, str):
        return {"name": given}
    if isinstance(given, SamplerSection):  # of another run
        return given.model_dump()
    if not isinstance(given, Mapping) or not isinstance(given.get("name", ""), str):
        raise InputError(
            f"sampler must be a name or a section with settings (found {_short_repr(given)})"
        )
    return dict(given)


def _short_repr(value: Any) -> str:
    """Return the representation of any value, shortened."""
    try:
        text = repr(value)
    except (
        ValueError,
        RecursionError,
    ):  # an integer with thousands of digits, or very deep nesting
        text = f"a very long {type(value).__name__}"
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]} ..."


def explain(error: ValidationError, prefix: str = "") -> str:
    """Return a message with all wrong settings and their values; `prefix` precedes the names of
    settings.
    """
    problems: dict[str, str] = {}
    values = {}
    for detail in error.errors():
        name = prefix + str((detail["loc"] or ("",))[0])
        problem = detail["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
        if detail["type"] == "extra_forbidden":
            problem = (
                f"is not a setting{'' if prefix else '; settings of the sampler are sampler.NAME'}"
            )
        problems[name] = f"{problems[name]} or {problem}" if name in problems else problem
        values[name] = _short_repr(detail["input"])
    return "; ".join(
        problem if name == prefix else f"{name}: {problem} (found {values[name]})"
        for name, problem in problems.items()
    )


class Checked(BaseModel):
    """Base class for groups of settings; `of` checks settings, and raises an error with a message
    for the user.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """Check settings.

        Raises
        ------
        InputError
            If any setting is wrong; the message names all of them.
        """
        try:
            return cls.whole()(**settings)
        except ValidationError as error:
            raise InputError(explain(error)) from error

    @classmethod
    def whole(cls) -> type[Self]:
        """Return the class whose fields are all settings; a subclass if a script has registered
        further settings.
        """
        return cls


class ChainConfig(Checked):
    """Requested settings of a chain: all settings that do not describe the target, including
    checkpoint settings.

    Lengths may be given in iterations, as a number, or in sweeps, as ``"500sweeps"``.
    """

    #: Whether the target is a density. If so, samplers that only sample densities may be chosen,
    #: and there are no predictions to monitor.
    for_density: ClassVar[bool] = True

    sampler: SamplerSection = setting(
        "Sampling algorithm; its settings are named sampler.NAME.",
        shown="baoab; psgld without biases or centring, or if the prior is fixed",
        metavar="|".join(for_ratings()),
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
            parse_length(value, sweep=1)
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
        return {
            **data,
            "sampler": SamplerSection.of(data.get("sampler", DEFAULT_SAMPLER), cls.for_density),
        }

    def plain(self, processes: int = 1, finest: int | None = None) -> dict[str, Any]:
        """Choose missing values, convert lengths to iterations, and return all settings after
        checking them.

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
        monitored = self.iterations is None and not self.for_density
        until = self.until or (
            format_accuracy({"ess": ESS_PER_CHAIN * self.chains}) if monitored else "none"
        )
        if until != "none":
            plain = self._plain(processes, finest, until)
            reason = self._why_unreachable(plain)
            if not reason:
                return plain
            if self.until:
                raise InputError(f"{named('until')} {until}: {reason}")
        return self._plain(processes, finest, None)

    def _why_unreachable(self, plain: Mapping[str, Any]) -> str:
        """Explain why the target accuracy cannot be reached or measured; empty if it can."""
        iterations, burn_in = plain["iterations"], plain["burn_in"]
        draws = max(0, iterations - burn_in) // plain["thin"]
        if parse_accuracy(plain["until"]).get("ess", 0) > draws * self.chains:
            advice = f"raise {named('iterations')}, or lower {named('thin')}"
            return f"{iterations:,} iterations give at most {draws:,} draws per chain: {advice}"
        config = self.sampler.config
        sweep = self.sampler.kind.sweep_length(config, plain["grid"])
        if config.step(burn_in, sweep, burn_in) != config.step(iterations - 1, sweep, burn_in):
            changes = (
                "the step changes after burn-in (sampler.warm_up or decay), so draws have unequal"
                " weights"
            )
            advice = f"raise {named('burn_in')}, or give {named('until')} none"
            return f"{changes}, but R-hat and ESS need equal weights: {advice}"
        return ""

    def _plain(self, processes: int, finest: int | None, until: str | None) -> dict[str, Any]:
        """Return all settings as `plain` does, with `until` as the target accuracy."""
        sampler, config = self.sampler.kind, self.sampler.config
        default_grid = 4 if processes <= 4 else 2 * processes
        grid = self.grid or min(default_grid, finest or default_grid)
        default_length = DEFAULT_LIMIT if until else DEFAULT_LENGTH
        lengths = {
            "iterations": default_length if self.iterations is None else self.iterations,
            "burn_in": self.burn_in,
            "thin": sampler.default_thin(config, grid) if self.thin is None else self.thin,
            "evaluate_every": self.evaluate_every,
        }
        plain = {
            name: parse_length(value, sampler.sweep_length(config, grid))
            for name, value in lengths.items()
        }
        for name in ("iterations", "thin", "evaluate_every"):
            if plain[name] < 1:
                raise InputError(f"{named(name)} must be at least 1")
        sampler.check(config, self.schedule, grid, plain["thin"])
        return {**dict(self), "grid": grid, "until": until, **plain}


class ResolvedChain(ChainConfig):
    """A resolved configuration of a chain: all fields have values, and lengths are in iterations."""

    grid: int = Field(ge=1, le=32767)
    iterations: int = Field(ge=1, le=MAX_ITERATIONS)
    burn_in: int = Field(ge=0)
    thin: int = Field(ge=1)
    evaluate_every: int = Field(ge=1)

    @classmethod
    def of_run(cls, run: RunDirectory) -> tuple[Self, Facts]:
        """Read the configuration of a run, and its facts.

        Raises
        ------
        InputError
            If ``run.toml`` is damaged, or its settings have changed since it was written.
        """
        settings, facts = run.read_settings()
        try:
            config = cls.of(settings)
        except InputError as error:
            lines = "".join(f"\n  {line}" for line in facts.get("registered", []))
            why = (
                f"\nThe run uses classes of a script; register them before you open the run:{lines}"
                if lines
                else ""
            )
            raise InputError(f"{run.settings_file}: {error}{why}") from error
        if facts.get("config_hash", config.hash()) != config.hash():
            advice = "Undo the change, or start another run with these settings"
            found = (
                "has been changed since the run was sampled: its settings do not match its"
                " config_hash"
            )
            raise InputError(f"{run.settings_file} {found}. {advice}")
        return config, facts

    @property
    def sweep_length(self) -> int:
        """Number of iterations in a sweep, which uses all data once."""
        return self.sampler.kind.sweep_length(self.sampler.config, self.grid)

    @property
    def first_draw(self) -> int:
        """Iteration of the first draw; a run that ends earlier cannot predict."""
        return self.burn_in + self.thin

    @property
    def accuracy_limits(self) -> dict[str, float]:
        """Limits of the target accuracy by measure; empty without a target accuracy."""
        return parse_accuracy(self.until) if self.until else {}

    def make_sampler(self) -> Sampler[Any, Any]:
        """Make the sampler."""
        return self.sampler.kind(self.sampler.config, self.burn_in)

    def checkpoint_interval(self) -> tuple[int | None, float | None]:
        """Return the iterations and the seconds between checkpoints; one of the two is None."""
        if isinstance(self.checkpoint_every, int):
            return self.checkpoint_every, None
        return None, parse_time(self.checkpoint_every)

    @property
    def unused(self) -> set[str]:
        """Settings that are neither stored nor hashed."""
        return set()

    def table(self) -> dict[str, Any]:
        """Return the settings by name, with values of TOML's types; settings without a value are
        left out.
        """
        settings = {
            name: value
            for name, value in self.model_dump(exclude=self.unused).items()
            if value is not None
        }
        settings["sampler"] = {
            name: value for name, value in settings["sampler"].items() if value is not None
        }
        return settings

    def hash(self) -> str:
        """Return the SHA-256 of the settings on which the draws depend."""
        content = self.model_dump(exclude={*CHANGEABLE, *self.unused})
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
