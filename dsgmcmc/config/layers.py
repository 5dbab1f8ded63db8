"""Merges settings from a TOML file, options and ``NAME=VALUE``, and adds defaults that depend on other settings."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dsgmcmc.config.run import RunConfig
from dsgmcmc.config.sampler import DEFAULT_SAMPLER, section_of
from dsgmcmc.errors import InputError
from dsgmcmc.model.likelihoods import LIKELIHOODS
from dsgmcmc.samplers import sampler_named
from dsgmcmc.storage.files import read_toml

#: Sampler of a factorisation if the metric of the default sampler may be unstable.
ROBUST_SAMPLER = "psgld"

#: Burn-in of a factorisation with the default sampler; docs/defaults.md gives the reasons.
BURN_IN = "50sweeps"


def read_settings(
    options: Mapping[str, Any], config_file: Path | None = None, assignments: Sequence[str] = ()
) -> dict[str, Any]:
    """Read and merge the settings of a user.

    Parameters
    ----------
    options : mapping of str to object
        Options of the command line.
    config_file : Path, optional
        TOML file; options override its settings. Hyphens in names are read as underscores.
    assignments : sequence of str, optional
        Values ``NAME=VALUE`` of ``--set``; they override options.

    Raises
    ------
    InputError
        If the file cannot be read, or an assignment is malformed.
    """
    file = _underscored(read_toml(config_file)) if config_file else {}
    return merged(file, options, parse_assignments(assignments))


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Merge settings; later layers take precedence.

    Sampler settings of earlier layers are dropped if a layer names a different sampler. Earlier sampler settings are
    taken to be settings of the default sampler if no earlier layer names one.
    """
    result: dict[str, Any] = {}
    for layer in layers:
        section, before = section_of(layer.get("sampler") or {}), result.get("sampler", {})
        name = before.get("name", DEFAULT_SAMPLER)
        if section.get("name", name) == name:
            section = before | section
        result |= {**layer, "sampler": section}
    return result


def build(*layers: Mapping[str, Any]) -> RunConfig:
    """Merge and check layers of settings of a factorisation; later layers take precedence.

    Raises
    ------
    InputError
        If any setting is wrong; the message names all of them.
    """
    given = merged(*layers)
    law = str(given.get("likelihood"))
    settings = merged(LIKELIHOODS[law].defaults if law in LIKELIHOODS else {}, given)
    settings["sampler"].setdefault("name", default_sampler(settings))
    if settings.get("prior") == "fixed":  # as published, with step sizes for ratings that are not standardised
        settings = {"noise_precision": 1.0, "prior_precision": 1.0, "standardise": False} | settings
    if law in LIKELIHOODS:
        settings.setdefault("standardise", LIKELIHOODS[law].has_noise)
    if settings["sampler"]["name"] == DEFAULT_SAMPLER:
        settings.setdefault("burn_in", BURN_IN)
    return RunConfig.of(_sampler_defaults(settings) | settings)


def _sampler_defaults(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Defaults of run settings that the sampler declares."""
    sampler = sampler_named(settings["sampler"]["name"])
    defaults = sampler.defaults if sampler else {}
    return {name: value for name, value in defaults.items() if name in RunConfig.model_fields}


def default_sampler(settings: Mapping[str, Any]) -> str:
    """Return the default sampler: BAOAB, unless its diagonal metric may be unstable.

    The metric may be unstable if the factors must explain a common mean, or have a wide prior: without biases, without
    centring, or with a fixed prior. All three cases diverged on MovieLens 1M. If the user sets a metric, the default is
    BAOAB in any case, as the sampler that has one.
    """
    stable = settings.get("biases", True) and settings.get("center", True) and settings.get("prior") != "fixed"
    asked = "metric" in settings["sampler"]
    return DEFAULT_SAMPLER if stable or asked else ROBUST_SAMPLER


def _underscored(section: dict[str, Any]) -> dict[str, Any]:
    return {
        name.replace("-", "_"): _underscored(value) if isinstance(value, dict) else value
        for name, value in section.items()
    }


def parse_assignments(assignments: Sequence[str]) -> dict[str, Any]:
    """Parse ``NAME=VALUE`` and ``sampler.NAME=VALUE``; a value is TOML or else a plain string.

    Raises
    ------
    InputError
        If an assignment has no ``=``.
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
