"""Settings from several places, merged: a TOML file, options, ``NAME=VALUE``; and the defaults that depend on them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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


def read_settings(
    options: Mapping[str, Any], config_file: Path | None = None, assignments: Sequence[str] = ()
) -> dict[str, Any]:
    """Settings that a user has given in several places.

    Parameters
    ----------
    options : mapping of str to object
        Options of the command line.
    config_file : Path, optional
        TOML file; options override it. Hyphens in its names mean underscores.
    assignments : sequence of str, optional
        ``NAME=VALUE`` given with ``--set``; they override options.

    Raises
    ------
    InputError
        If the file cannot be read, or an assignment is malformed.
    """
    file = _underscored(read_toml(config_file)) if config_file else {}
    return merged(file, options, parse_assignments(assignments))


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Merge settings, of which later ones take precedence.

    A layer that names another sampler than those before it drops their sampler's settings; unless they name one, these
    are the default sampler's.
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
    """Merge layers of settings of a factorisation, of which later ones take precedence, and check them.

    Raises
    ------
    InputError
        If any setting is wrong; the message names all of them.
    """
    given = merged(*layers)
    law = SYNONYMS.get(str(given.get("likelihood")), given.get("likelihood"))
    settings = merged(LIKELIHOODS[law].defaults if law in LIKELIHOODS else {}, given)
    settings["sampler"].setdefault("name", default_sampler(settings))
    if settings.get("prior") == "fixed":  # as published; the steps are for ratings in their own unit
        settings = {"noise_precision": 1.0, "prior_precision": 1.0, "standardise": False} | settings
    if law in LIKELIHOODS:
        settings.setdefault("standardise", LIKELIHOODS[law].has_noise)
    if settings["sampler"]["name"] == DEFAULT_SAMPLER:
        settings.setdefault("burn_in", BURN_IN)
    return RunConfig.of(_sampler_defaults(settings) | settings)


def _sampler_defaults(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Defaults of the run's settings that its sampler declares."""
    sampler = sampler_named(settings["sampler"]["name"])
    defaults = sampler.defaults if sampler else {}
    return {name: value for name, value in defaults.items() if name in RunConfig.model_fields}


def default_sampler(settings: Mapping[str, Any]) -> str:
    """Return the sampler of a run that names none: BAOAB, unless its diagonal metric may not be stable.

    That is so if factors must explain a common mean, or have a wide prior: without biases, without centring, or with a
    fixed prior (each was seen to diverge on MovieLens 1M). A user who sets a metric gets the sampler that has one.
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
