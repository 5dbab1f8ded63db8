"""The configuration of a run: defaults, TOML file, options, checked once and resolved to plain numbers."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from dsgmcmc.errors import InputError
from dsgmcmc.samplers import SAMPLERS
from dsgmcmc.samplers.step_size import StepSize
from dsgmcmc.types import NoiseName, PriorName, ScheduleName

_SPAN = re.compile(r"(\d+)\s*sweeps?")
_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|h)")
_UNION_MEMBER = re.compile(r"int|str|float|literal\[.*\]")  # Pydantic names the alternative that failed
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}

#: The sampler if none is named; the second where the metric of the first is not known to be stable.
DEFAULT_SAMPLER, ROBUST_SAMPLER = "baoab", "psgld"

#: What may change between two parts of one run: it does not touch the chain.
FREE = ("iterations", "checkpoint_every", "keep_checkpoints", "chains")

#: What ``--override`` may change on the way: which draws are kept and which iterations evaluated, not the chain.
OVERRIDABLE = ("thin", "evaluate_every")

Span = int | str


class RunConfig(BaseModel):
    """Everything that the draws depend on besides the data, and when to save.

    Lengths in iterations may be given as a number or as ``"500sweeps"``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    sampler: dict[str, Any] = Field(default_factory=lambda: {"name": DEFAULT_SAMPLER})
    rank: int = Field(32, ge=1, le=512, description="number K of latent dimensions")
    grid: int = Field(4, ge=1, le=32767, description="the matrix is cut in grid x grid blocks")
    schedule: ScheduleName = "shuffled"
    prior: PriorName = "normal-gamma"
    prior_precision: float = Field(1.0, gt=0, allow_inf_nan=False)
    noise: NoiseName = "shared"
    noise_precision: float | Literal["sampled"] = "sampled"
    biases: bool = True
    center: bool = True
    initial_sd: float = Field(0.1, gt=0, allow_inf_nan=False)
    seed: int = Field(0, ge=0, lt=2**63)
    chains: int = Field(1, ge=1, le=65536)
    iterations: Span = "700sweeps"
    burn_in: Span = "100sweeps"
    thin: Span | None = Field(None, description="default: about two sweeps")
    evaluate_every: Span = "10sweeps"
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

    @field_validator("iterations", "burn_in", "thin", "evaluate_every")
    @classmethod
    def _span(cls, value: Span | None) -> Span | None:
        if isinstance(value, str):
            if value.isdigit():
                return int(value)
            if not _SPAN.fullmatch(value):
                raise ValueError("must be a number of iterations, or like '500sweeps'")
        elif value is not None and value < 0:
            raise ValueError("must not be negative")
        return value

    @field_validator("checkpoint_every")
    @classmethod
    def _interval(cls, value: int | str) -> int | str:
        if isinstance(value, str) and value.isdigit():
            value = int(value)
        if isinstance(value, str) and not _TIME.fullmatch(value):
            raise ValueError("must be a number of iterations, or a time like '90s', '10min' or '1h'")
        if isinstance(value, int) and value < 1:
            raise ValueError("must be at least 1")
        return value

    @model_validator(mode="before")
    @classmethod
    def _sampler(cls, data: Any) -> Any:
        """Fill in the sampler's own section from its class, so that the resolved configuration is complete."""
        section = _section(data.get("sampler", {}))
        name = section.pop("name", DEFAULT_SAMPLER)
        if name not in SAMPLERS:
            raise ValueError(f"sampler {name!r} is not known; choose one of {', '.join(SAMPLERS)}")
        try:
            settings = SAMPLERS[name].Config(**section)
        except ValidationError as error:
            raise ValueError(_explain(error, "sampler.")) from error
        return {**data, "sampler": {"name": name, **settings.model_dump()}}

    @property
    def sampler_name(self) -> str:
        """Name of the sampler."""
        return str(self.sampler["name"])

    @property
    def sampler_config(self) -> StepSize:
        """The sampler's own configuration."""
        return SAMPLERS[self.sampler_name].Config(**{k: v for k, v in self.sampler.items() if k != "name"})

    @property
    def dimension(self) -> int:
        """Columns D of a factor."""
        return self.rank + int(self.biases)

    def checkpoint_interval(self) -> tuple[int | None, float | None]:
        """Iterations, or seconds, between checkpoints."""
        if isinstance(self.checkpoint_every, int):
            return self.checkpoint_every, None
        match = _TIME.fullmatch(self.checkpoint_every)
        assert match
        return None, float(match[1]) * _SECONDS[match[2]]

    def resolved(self) -> RunConfig:
        """Replace lengths in sweeps by iterations, and check that the sampler admits the settings."""
        sweep = SAMPLERS[self.sampler_name].sweep_length_of(self.grid)
        lengths = {}
        sampler, settings = SAMPLERS[self.sampler_name], self.sampler_config
        thin = sampler.default_thin(settings, self.grid) if self.thin is None else self.thin
        for name in ("iterations", "burn_in", "thin", "evaluate_every"):
            value = thin if name == "thin" else getattr(self, name)
            match = _SPAN.fullmatch(value) if isinstance(value, str) else None
            lengths[name] = int(match[1]) * sweep if match else int(value)
        for name in ("iterations", "thin", "evaluate_every"):
            if lengths[name] < 1:
                raise InputError(f"{name} must be at least 1")
        sampler.check(settings, self.schedule, self.grid, lengths["thin"])
        return self.model_copy(update=lengths)

    def hash(self) -> str:
        """Identity of the chain that this configuration describes: SHA-256 of what the draws depend on."""
        content = self.model_dump(exclude=set(FREE))
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def build(*layers: Mapping[str, Any]) -> RunConfig:
    """Merge layers of settings, later ones winning, and check them.

    A layer that names another sampler than the ones before discards their sampler section.

    Raises
    ------
    InputError
        Naming every setting that is wrong.
    """
    merged: dict[str, Any] = {}
    default = default_sampler({name: value for layer in layers for name, value in layer.items()})
    for layer in layers:
        settings = dict(layer)
        given = settings.pop("sampler", None)
        if given is not None:
            section, before = _section(given), merged.get("sampler", {})
            named = before.get("name", default)
            same = section.get("name", named) == named
            merged["sampler"] = {**before, **section} if same else section
        merged.update(settings)
    if merged.get("prior") == "fixed":
        merged.setdefault("noise_precision", 1.0)
        merged.setdefault("prior_precision", 1.0)
    section = merged.setdefault("sampler", {})
    name = section.setdefault("name", default)
    if name in SAMPLERS:
        merged = {**SAMPLERS[name].defaults, **merged}
    try:
        return RunConfig(**merged)
    except ValidationError as error:
        raise InputError(_explain(error)) from error


def default_sampler(settings: Mapping[str, Any]) -> str:
    """Return the sampler of a run that names none: BAOAB, unless its diagonal metric may not be stable.

    That is so where factors have a common mean to explain or a wide prior: without biases, without centring, or with a
    fixed prior (each was seen to diverge on MovieLens 1M).
    """
    stable = settings.get("biases", True) and settings.get("center", True) and settings.get("prior") != "fixed"
    return DEFAULT_SAMPLER if stable else ROBUST_SAMPLER


def _section(given: Any) -> dict[str, Any]:
    """Return the sampler's section as a dict of its own; a plain name stands for a section with that name."""
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


def read_toml(path: Path) -> dict[str, Any]:
    """Read a configuration file; hyphens in names mean underscores.

    Raises
    ------
    InputError
        If it cannot be read or is not TOML.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path} cannot be read as TOML: {error}") from error
    return _underscored(content)


def _underscored(section: dict[str, Any]) -> dict[str, Any]:
    return {
        name.replace("-", "_"): _underscored(value) if isinstance(value, dict) else value
        for name, value in section.items()
    }


def parse_assignments(assignments: list[str]) -> dict[str, Any]:
    """Settings from ``NAME=VALUE`` and ``sampler.NAME=VALUE``; values as in TOML, or plain words.

    Raises
    ------
    InputError
        If one has no ``=``.
    """
    settings: dict[str, Any] = {}
    for text in assignments:
        name, equals, raw = text.partition("=")
        if not equals:
            raise InputError(f"--set {text}: expected NAME=VALUE, for example --set sampler.alpha=0.95")
        try:
            value = tomllib.loads(f"value = {raw}")["value"]
        except tomllib.TOMLDecodeError:
            value = raw
        name = name.strip().replace("-", "_")
        if name.startswith("sampler."):
            settings.setdefault("sampler", {})[name.removeprefix("sampler.")] = value
        else:
            settings[name] = value
    return settings
