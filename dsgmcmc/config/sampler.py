"""The sampler section of a configuration, and messages about wrong settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_serializer

from dsgmcmc.errors import InputError, what_it_must_be
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
            raise ValueError(explain(error, kind.Config.model_fields, "sampler.")) from error

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


def _in_words(detail: Any, known: Iterable[str], prefix: str) -> str:
    """Describe an error in a setting; for an unknown name, suggest a similar name."""
    if detail["type"] != "extra_forbidden":
        return what_it_must_be(detail)
    name = str(detail["loc"][-1])
    kinds = *SAMPLERS.values(), *DENSITY_SAMPLERS.values()
    owned = {field for kind in kinds for field in kind.Config.model_fields}
    if not prefix and name in owned:
        return f"is not a setting of a run, but of its sampler: sampler.{name}"
    near = get_close_matches(name, known, 1)
    return f"is not a setting{f'; did you mean {prefix}{near[0]}?' if near else ''}"


def _shown(value: Any) -> str:
    """Representation of any value, shortened."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer with thousands of digits
        text = f"a very long {type(value).__name__}"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]} ..."


def explain(error: ValidationError, known: Iterable[str], prefix: str = "") -> str:
    """List the wrong settings with their values.

    Parameters
    ----------
    error : ValidationError
        Error of Pydantic.
    known : iterable of str
        Names of all settings.
    prefix : str
        Prefix of the names.
    """
    wrong: dict[str, tuple[list[str], str]] = {}
    for detail in error.errors():
        name = prefix + str(detail["loc"][0]) if detail["loc"] else ""
        texts, _ = wrong.setdefault(name, ([], _shown(detail["input"])))
        texts.append(_in_words(detail, known, prefix))
    lines = []
    for name, (texts, value) in wrong.items():
        text = " or ".join(texts).replace(" or must be ", " or ")
        lines.append(f"{name}: {text} (found {value})" if name else text)
    return "; ".join(lines)
