"""Merges settings from several places into one configuration: options, a TOML file, ``NAME=VALUE``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from dsgmcmc.config.run import RunConfig
from dsgmcmc.config.sampler import DEFAULT_SAMPLER, section_of
from dsgmcmc.errors import InputError
from dsgmcmc.model.likelihoods import LIKELIHOODS, SYNONYMS
from dsgmcmc.samplers import sampler_named
from dsgmcmc.storage.files import read_toml

#: The sampler of a factorisation if the metric of the default one may not be stable.
ROBUST_SAMPLER = "psgld"

#: Burn-in of a factorisation with the default sampler; why: docs/defaults.md.
BURN_IN = "50sweeps"


class Layers(NamedTuple):
    """Where a run's settings come from.

    Attributes
    ----------
    options : mapping of str to object
        Options of the command line, or of the caller.
    config_file : Path or None
        TOML file; options override it. Hyphens in its names mean underscores.
    assignments : sequence of str
        ``NAME=VALUE`` given with ``--set``; they override options.
    below, above : mapping of str to object
        Settings that all others override, such as those of a model that was chosen, and settings that override all.
    """

    options: Mapping[str, Any]
    config_file: Path | None = None
    assignments: Sequence[str] = ()
    below: Mapping[str, Any] = MappingProxyType({})
    above: Mapping[str, Any] = MappingProxyType({})

    def of_sampler(self) -> set[str]:
        """Names of the sampler's settings that the user gave; with ``name`` if the sampler itself is among them."""
        return {name for layer in self.read()[1:-1] if layer.get("sampler") for name in section_of(layer["sampler"])}

    def read(self) -> list[Mapping[str, Any]]:
        """Settings of every layer; later ones take precedence.

        Raises
        ------
        InputError
            If the file cannot be read, or an assignment is malformed.
        """
        file = [_underscored(read_toml(self.config_file))] if self.config_file else []
        return [self.below, *file, self.options, parse_assignments(self.assignments), self.above]


def build(*layers: Mapping[str, Any]) -> RunConfig:
    """Merge layers of settings of a factorisation, of which later ones take precedence, and check them.

    A layer that names another sampler than the layers before it discards their sampler section.

    Raises
    ------
    InputError
        If any setting is wrong; the message names all of them.
    """
    given = {name: value for layer in layers for name, value in layer.items()}
    law = SYNONYMS.get(str(given.get("likelihood")), given.get("likelihood"))
    defaults = LIKELIHOODS[law].defaults if law in LIKELIHOODS else {}
    sections = [section_of(layer["sampler"]) for layer in (defaults, *layers) if layer.get("sampler")]
    section = {name: value for layer in sections for name, value in layer.items()}
    merged = _merge((defaults, *layers), default_sampler({**defaults, **given, "sampler": section}))
    if merged.get("prior") == "fixed":  # as published; the steps are for ratings in their own unit
        published = {"noise_precision": 1.0, "prior_precision": 1.0, "standardise": False}
        merged = published | merged
    if law in LIKELIHOODS:
        merged.setdefault("standardise", LIKELIHOODS[law].has_noise)
    if merged["sampler"]["name"] == DEFAULT_SAMPLER:
        merged.setdefault("burn_in", BURN_IN)
    return RunConfig.of({**_sampler_defaults(merged), **merged})


def _merge(layers: Sequence[Mapping[str, Any]], default: str) -> dict[str, Any]:
    """Merge layers; `default` is the sampler if none of them names one."""
    merged: dict[str, Any] = {}
    for layer in layers:
        settings = dict(layer)
        given = settings.pop("sampler", None)
        if given is not None:
            section, before = section_of(given), merged.get("sampler", {})
            named = before.get("name", default)
            same = section.get("name", named) == named
            merged["sampler"] = {**before, **section} if same else section
        merged.update(settings)
    merged.setdefault("sampler", {}).setdefault("name", default)
    return merged


def _sampler_defaults(merged: Mapping[str, Any]) -> dict[str, Any]:
    """Defaults of the run's settings that its sampler declares."""
    sampler = sampler_named(merged["sampler"]["name"])
    defaults = sampler.defaults if sampler else {}
    return {setting: value for setting, value in defaults.items() if setting in RunConfig.model_fields}


def default_sampler(settings: Mapping[str, Any]) -> str:
    """Return the sampler of a run that names none: BAOAB, unless its diagonal metric may not be stable.

    That is so if factors must explain a common mean, or have a wide prior: without biases, without centring, or with a
    fixed prior (each was seen to diverge on MovieLens 1M). A user who sets a metric gets the sampler that has one.
    """
    stable = settings.get("biases", True) and settings.get("center", True) and settings.get("prior") != "fixed"
    asked = "metric" in section_of(settings.get("sampler", {}))
    return DEFAULT_SAMPLER if stable or asked else ROBUST_SAMPLER


def _underscored(section: dict[str, Any]) -> dict[str, Any]:
    return {
        name.replace("-", "_"): _underscored(value) if isinstance(value, dict) else value
        for name, value in section.items()
    }


def parse_assignments(assignments: Sequence[str]) -> dict[str, Any]:
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
        except (ValueError, RecursionError):
            value = raw
        name = name.strip().replace("-", "_")
        if name.startswith("sampler."):
            settings.setdefault("sampler", {})[name.removeprefix("sampler.")] = value
        else:
            settings[name] = value
    return settings
