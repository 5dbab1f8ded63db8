"""The configuration of a run: what is asked for, and what it resolves to, each checked once.

What is asked for may leave things open: lengths in sweeps, no grid, no thinning. A `ResolvedConfig` has plain numbers:
the processes sample by it, ``run.toml`` has it, and it identifies a chain.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)

from dsgmcmc.config.units import parse_length, parse_time
from dsgmcmc.errors import InputError
from dsgmcmc.samplers import SAMPLERS
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.samplers.step_size import StepSize
from dsgmcmc.targets.factorisation.likelihoods import LIKELIHOODS, Likelihood
from dsgmcmc.types import NoiseName, PriorName, ScheduleName

_UNION_MEMBER = re.compile(r"int|str|float|literal\[.*\]")  # Pydantic names the alternative that failed

#: The sampler if none is named; the second where the metric of the first is not known to be stable.
DEFAULT_SAMPLER, ROBUST_SAMPLER = "baoab", "psgld"

#: What may change between two parts of one run: it does not touch the chain.
FREE = ("iterations", "checkpoint_every", "keep_checkpoints", "chains")

#: What ``--override`` may change on the way: which draws are kept and which iterations evaluated, not the chain.
OVERRIDABLE = ("thin", "evaluate_every")

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


class RunConfig(BaseModel):
    """What is asked for: everything that the draws depend on besides the data, and when to save.

    Lengths in iterations may be given as a number or as ``"500sweeps"``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    sampler: SamplerSection  # of the default sampler, if nothing is said about it
    rank: int = Field(32, ge=1, le=512, description="number K of latent dimensions")
    grid: int | None = Field(
        None, ge=1, le=32767, description="the matrix is cut in grid x grid blocks; default 4, more for many processes"
    )
    schedule: ScheduleName = "shuffled"
    prior: PriorName = "normal-gamma"
    prior_precision: float = Field(1.0, gt=0, allow_inf_nan=False)
    likelihood: str = Field("gaussian", description="law of a rating")
    noise: NoiseName = "shared"
    noise_precision: float | Literal["sampled"] = "sampled"
    biases: bool = True
    center: bool = True
    initial_sd: float = Field(0.1, gt=0, allow_inf_nan=False)
    seed: int = Field(0, ge=0, lt=2**63)
    chains: int = Field(1, ge=1, le=65536)
    iterations: Length = "700sweeps"
    burn_in: Length = "100sweeps"
    thin: Length | None = Field(None, description="default: about two sweeps")
    evaluate_every: Length = "10sweeps"
    hyper_start: int = Field(1, ge=0, description="sweeps before the first draw of the hyperparameters")
    hyper_every: int = Field(1, ge=1, description="sweeps between draws of the hyperparameters")
    checkpoint_every: int | str = "10min"
    keep_checkpoints: int = Field(2, ge=2)
    save_draws: int = Field(50, ge=0)

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

    def resolved(self, processes: int = 1) -> ResolvedConfig:
        """Decide what was left open, count lengths in iterations, and check that the sampler admits the settings.

        Parameters
        ----------
        processes : int
            The most that share a chain; they decide the grid, if none was asked for.

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
        if not LIKELIHOODS[self.likelihood].has_noise and (self.noise_precision, self.noise) != (1.0, "shared"):
            raise InputError(f"the {self.likelihood} likelihood has no noise: leave out noise and noise_precision")
        return ResolvedConfig.of({**dict(self), "grid": grid, **plain})


class ResolvedConfig(RunConfig):
    """A configuration in plain numbers, with nothing left open; the same fields as what was asked for."""

    grid: int = Field(ge=1, le=32767)
    iterations: int = Field(ge=1)
    burn_in: int = Field(ge=0)
    thin: int = Field(ge=1)
    evaluate_every: int = Field(ge=1)

    @property
    def law(self) -> type[Likelihood]:
        """The likelihood's class."""
        return LIKELIHOODS[self.likelihood]

    @property
    def dimension(self) -> int:
        """Columns D of a factor."""
        return self.rank + int(self.biases)

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
        if content["likelihood"] == "gaussian":  # what came later does not count where it is not used:
            del content["likelihood"]  # runs from before are the same chains
        if content["sampler"]["gradient"] is None:
            del content["sampler"]["gradient"]
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
