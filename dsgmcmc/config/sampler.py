"""The sampler section of a configuration, and messages about wrong settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_serializer

from dsgmcmc.errors import InputError
from dsgmcmc.samplers import DENSITY_SAMPLERS, SAMPLERS, sampler_named
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.samplers.gradients import DATUM_GRADIENTS
from dsgmcmc.samplers.step_size import SamplerConfig

_MOST_SHOWN = 80

#: The default sampler.
DEFAULT_SAMPLER = "baoab"


class SamplerSection(BaseModel):
    """Name and configuration of a sampler, which form one section in files.

    Attributes
    ----------
    name : str
        A key of `dsgmcmc.samplers.SAMPLERS` or ``DENSITY_SAMPLERS``.
    config : SamplerConfig
        Configuration, an instance of the sampler's class `Config`.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    config: SamplerConfig

    @classmethod
    def of(cls, given: Any, of_densities: bool = True) -> Self:
        """Check a section; a plain name stands for the defaults of the sampler.

        Parameters
        ----------
        given : object
            Name or section.
        of_densities : bool
            Whether the samplers for densities alone are allowed.

        Raises
        ------
        ValueError
            If the sampler is not known or not allowed, or its settings are wrong.
        """
        if isinstance(given, cls):
            return given
        section = section_of(given)
        name = section.pop("name", DEFAULT_SAMPLER)
        known = [*SAMPLERS, *(DENSITY_SAMPLERS if of_densities else ())]
        kind = sampler_named(name) if isinstance(name, str) else None
        if kind is None or name not in known:
            why = "is not known" if kind is None else "samples densities alone"
            raise ValueError(f"sampler {_shown(name)} {why}; choose one of {', '.join(known)}")
        if section.get("gradient") == kind.gradients[0]:  # the default has the same hash if it is given
            del section["gradient"]
        if section.get("gradient") in DATUM_GRADIENTS and not of_densities:
            raise ValueError(
                f"sampler.gradient = {section['gradient']!r} is only for densities that are sums over data"
            )
        try:
            return cls(name=name, config=kind.Config(**section))
        except ValidationError as error:
            raise ValueError(explain(error, "sampler.")) from error

    @property
    def kind(self) -> type[Sampler[Any, Any]]:
        """Class of the sampler."""
        kind = sampler_named(self.name)
        assert kind is not None
        return kind

    def make(self, burn_in: int) -> Sampler[Any, Any]:
        """Make the sampler, given the number of iterations of burn-in."""
        return self.kind(self.config, burn_in)

    @model_serializer
    def _flat(self) -> dict[str, Any]:
        return {"name": self.name, **self.config.model_dump()}


def section_of(given: Any) -> dict[str, Any]:
    """Return a copy of the sampler section as a dict; a plain name stands for a section with this name.

    Raises
    ------
    InputError
        If `given` is neither a name nor a section.
    """
    if isinstance(given, str):
        return {"name": given}
    if not isinstance(given, Mapping):
        raise InputError(f"sampler must be a name or a section of settings (found {_shown(given)})")
    return dict(given)


def _shown(value: Any) -> str:
    """Representation of any value, shortened."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer with thousands of digits
        text = f"a very long {type(value).__name__}"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]} ..."


def explain(error: ValidationError, prefix: str = "") -> str:
    """List the wrong settings with their values; `prefix` precedes their names."""
    wrong: dict[str, list[str]] = {}
    values = {}
    for detail in error.errors():
        name, what = prefix + str((detail["loc"] or ("",))[0]), detail["msg"].removeprefix("Value error, ")
        if detail["type"] == "extra_forbidden":
            what = f"is not a setting{'' if prefix else '; those of the sampler are sampler.NAME'}"
        wrong.setdefault(name, []).append(what.replace("Input should be", "must be"))
        values[name] = _shown(detail["input"])
    lines = {name: " or ".join(texts) for name, texts in wrong.items()}
    return "; ".join(
        f"{name}: {text} (found {values[name]})" if name != prefix else text for name, text in lines.items()
    )


class Checked(BaseModel):
    """Settings that are checked by `of`, with messages for the user."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """Check settings.

        Raises
        ------
        InputError
            If any setting is wrong; the message names all of them.
        """
        try:
            return cls(**settings)
        except ValidationError as error:
            raise InputError(explain(error)) from error
