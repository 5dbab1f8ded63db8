"""The configuration of a chain of any target: what is asked for, and what it resolves to, each checked once.

What is asked for may leave things open: lengths in sweeps, no grid, no thinning. What it resolves to has plain numbers:
the processes sample by it, ``run.toml`` has it, and it identifies a chain.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_serializer, model_validator

from dsgmcmc.config.units import parse_length, parse_time
from dsgmcmc.errors import InputError
from dsgmcmc.samplers import SAMPLERS
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.samplers.step_size import StepSize
from dsgmcmc.types import ScheduleName

_UNION_MEMBER = re.compile(r"int|str|float|literal\[.*\]")  # Pydantic names the alternative that failed

#: The sampler if none is named.
DEFAULT_SAMPLER = "baoab"

#: What may change between two parts of one run: it does not touch the chain.
FREE = ("iterations", "checkpoint_every", "keep_checkpoints", "chains")

#: What ``--override`` may change on the way: which draws are kept and which iterations evaluated, not the chain.
OVERRIDABLE = ("thin", "evaluate_every")

#: Settings that came later, and what they are where they are not used: runs from before them are the same chains.
LATER = {"likelihood": "gaussian"}
LATER_OF_SAMPLERS = {"gradient": None}

Length = int | str  # iterations, or such as "500sweeps"


class SamplerSection(BaseModel):
    """A sampler by its name in the registry, and its own configuration; in files they are one section.

    Attributes
    ----------
    name : str
        One of `dsgmcmc.samplers.SAMPLERS`.
    config : StepSize
        Of the class `Config` of that sampler.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    config: StepSize

    @classmethod
    def of(cls, given: Any) -> Self:
        """Check a section, or take the defaults of a sampler that is only named.

        Raises
        ------
        ValueError
            If there is no such sampler, or it admits no such settings.
        """
        if isinstance(given, cls):
            return given
        section = section_of(given)
        name = section.pop("name", DEFAULT_SAMPLER)
        if name not in SAMPLERS:
            raise ValueError(f"sampler {name!r} is not known; choose one of {', '.join(SAMPLERS)}")
        if section.get("gradient") == SAMPLERS[name].gradients[0]:  # the same chain as without naming it
            del section["gradient"]
        try:
            return cls(name=name, config=SAMPLERS[name].Config(**section))
        except ValidationError as error:
            raise ValueError(_explain(error, "sampler.")) from error

    @property
    def kind(self) -> type[Sampler[Any]]:
        """Class of the sampler."""
        return SAMPLERS[self.name]

    @model_serializer
    def _flat(self) -> dict[str, Any]:
        return {"name": self.name, **self.config.model_dump()}


class ChainConfig(BaseModel):
    """What is asked for: everything that the draws depend on besides the target, and when to save.

    Lengths in iterations may be given as a number or as ``"500sweeps"``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    sampler: SamplerSection  # of the default sampler, if nothing is said about it
    grid: int | None = Field(
        None, ge=1, le=32767, description="the data are cut in as many parts; default 4, more for many processes"
    )
    schedule: ScheduleName = "shuffled"
    initial_sd: float = Field(0.1, gt=0, allow_inf_nan=False)
    seed: int = Field(0, ge=0, lt=2**63)
    chains: int = Field(1, ge=1, le=65536)
    iterations: Length = "700sweeps"
    burn_in: Length = "100sweeps"
    thin: Length | None = Field(None, description="default: about two sweeps")
    evaluate_every: Length = "10sweeps"
    checkpoint_every: int | str = "10min"
    keep_checkpoints: int = Field(2, ge=2)
    save_draws: int = Field(50, ge=0)

    @field_validator("iterations", "burn_in", "thin", "evaluate_every")
    @classmethod
    def _length(cls, value: Length | None) -> Length | None:
        if value is not None:
            parse_length(value, sweep=1)
        return value

    @field_validator("checkpoint_every")
    @classmethod
    def _interval(cls, value: int | str) -> int | str:
        if isinstance(value, str) and value.isdigit():
            value = int(value)
        if isinstance(value, str) and parse_time(value) is None:
            raise ValueError("must be a number of iterations, or a time like '90s', '10min' or '1h'")
        if isinstance(value, int) and value < 1:
            raise ValueError("must be at least 1")
        return value

    @model_validator(mode="before")
    @classmethod
    def _sampler(cls, data: Any) -> Any:
        return {**data, "sampler": SamplerSection.of(data.get("sampler", DEFAULT_SAMPLER))}

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """Check settings.

        Raises
        ------
        InputError
            Naming every setting that is wrong.
        """
        try:
            return cls(**settings)
        except ValidationError as error:
            raise InputError(_explain(error)) from error

    def plain(self, processes: int = 1) -> dict[str, Any]:
        """Decide what was left open, count lengths in iterations, and check that the sampler admits the settings.

        Parameters
        ----------
        processes : int
            The most that share a chain; they decide the grid, if none was asked for.

        Returns
        -------
        dict
            All settings, for the class of what it resolves to.

        Raises
        ------
        InputError
            If the settings do not go together.
        """
        sampler, config = self.sampler.kind, self.sampler.config
        grid = self.grid or (4 if processes <= 4 else 2 * processes)
        lengths = {
            "iterations": self.iterations,
            "burn_in": self.burn_in,
            "thin": sampler.default_thin(config, grid) if self.thin is None else self.thin,
            "evaluate_every": self.evaluate_every,
        }
        plain = {name: parse_length(value, sampler.sweep_length(config, grid)) for name, value in lengths.items()}
        for name in ("iterations", "thin", "evaluate_every"):
            if plain[name] < 1:
                raise InputError(f"{name} must be at least 1")
        sampler.check(config, self.schedule, grid, plain["thin"])
        return {**dict(self), "grid": grid, **plain}

    def resolved(self, processes: int = 1) -> ResolvedChain:
        """Resolve it; see `plain`."""
        return ResolvedChain.of(self.plain(processes))


class ResolvedChain(ChainConfig):
    """A configuration in plain numbers, with nothing left open; the same fields as what was asked for."""

    grid: int = Field(ge=1, le=32767)
    iterations: int = Field(ge=1)
    burn_in: int = Field(ge=0)
    thin: int = Field(ge=1)
    evaluate_every: int = Field(ge=1)

    def resolved(self, processes: int = 1) -> Self:
        """Return it: nothing is open."""
        return self

    @property
    def sweep_length(self) -> int:
        """Iterations that use all the data once."""
        return self.sampler.kind.sweep_length(self.sampler.config, self.grid)

    def make_sampler(self, step_scale: float = 1.0) -> Sampler[Any]:
        """Make the sampler, with the configured step sizes times `step_scale`."""
        config = self.sampler.config
        sizes = {name: getattr(config, name) for name in ("step_size", "burn_in_step_size")}
        scaled = {name: size * step_scale for name, size in sizes.items() if size is not None}
        return self.sampler.kind(config.model_copy(update=scaled), self.burn_in)

    def checkpoint_interval(self) -> tuple[int | None, float | None]:
        """Iterations, or seconds, between checkpoints."""
        if isinstance(self.checkpoint_every, int):
            return self.checkpoint_every, None
        return None, parse_time(self.checkpoint_every)

    def table(self) -> dict[str, Any]:
        """Settings by name, in the types of TOML; what has no value is left out."""
        settings = self.model_dump()
        settings["sampler"] = {name: value for name, value in settings["sampler"].items() if value is not None}
        return settings

    def hash(self) -> str:
        """Identity of the chain that this configuration describes: SHA-256 of what the draws depend on."""
        content = self.model_dump(exclude=set(FREE))
        for section, later in ((content, LATER), (content["sampler"], LATER_OF_SAMPLERS)):
            for name, unused in later.items():
                if name in section and section[name] == unused:
                    del section[name]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def section_of(given: Any) -> dict[str, Any]:
    """Return the sampler's section as a dict of its own; a plain name stands for a section with that name.

    Raises
    ------
    InputError
        If it is neither.
    """
    if isinstance(given, str):
        return {"name": given}
    if not isinstance(given, Mapping):
        raise InputError(f"sampler must be a name or a section of settings (found {given!r})")
    return dict(given)


def _explain(error: ValidationError, prefix: str = "") -> str:
    messages: dict[str, list[str]] = {}
    found: dict[str, str] = {}
    for detail in error.errors():
        name = prefix + ".".join(str(part) for part in detail["loc"] if not _UNION_MEMBER.fullmatch(str(part)))
        text = detail["msg"].removeprefix("Value error, ")
        if detail["type"] == "extra_forbidden":
            text = "is not a setting"
        name = name.rstrip(".")
        messages.setdefault(name, []).append(text)
        found[name] = f" (found {detail['input']!r})" if detail["loc"] else ""
    texts = {name: " or ".join(several) + found[name] for name, several in messages.items()}
    return "; ".join(f"{name}: {text}" if name else text for name, text in texts.items())
