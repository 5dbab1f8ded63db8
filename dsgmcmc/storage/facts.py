"""Facts about a run in section ``[run]`` of ``run.toml``, and checks that its snapshots agree with them.

The manifest of every snapshot has the hashes of the configuration and of the data. It also has, in
``about.made_with``, the facts that results depend on: centre, range and levels of the ratings, and which side is W. A
reader compares both with ``run.toml``, and refuses a file that has been changed.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from pydantic import BaseModel, ConfigDict

from dsgmcmc._version import __version__
from dsgmcmc.errors import InputError
from dsgmcmc.parallel.comm import cpu_name
from dsgmcmc.storage.manifest import Manifest, Sha256

Facts = dict[str, Any]

#: Hashes that identify a run; every manifest has separate fields for them.
IDENTITY_FACTS = ("data_hash", "config_hash")
#: Facts that are not in a manifest: path of the data and warnings about them, which may change from job to job, the
#: hashes, and versions.
OTHER_FACTS = ("data", "cautions", *IDENTITY_FACTS, "versions")


class FactsModel(BaseModel):
    """Section ``[run]`` of ``run.toml``: the facts that no snapshot has recorded, and any other facts."""

    model_config = ConfigDict(strict=True, extra="allow")

    data: str = ""
    given_of_sampler: list[str] = []
    cautions: list[str] = []
    versions: dict[str, str] = {}
    start: Sha256 = ""
    data_hash: Sha256 = ""
    config_hash: Sha256 = ""


def made_with(facts: Mapping[str, Any]) -> Facts:
    """Return the facts that a snapshot must agree with."""
    return {name: value for name, value in facts.items() if name not in OTHER_FACTS}


def header(
    kind: str, chain: int, iteration: int, grid: int, facts: Facts, state: Mapping[str, Any] | None = None, **about: Any
) -> dict[str, Any]:
    """Return the fields of a manifest but its blocks; `about` are further facts outside the digest."""
    known = {"versions": versions(), "made_with": made_with(facts), **about}
    place = {"kind": kind, "chain": chain, "iteration": iteration, "grid": grid, "state": state or {}, "about": known}
    return place | {name: facts[name] for name in IDENTITY_FACTS}


def check_made_with(manifest: Manifest, facts: Mapping[str, Any], path: Path) -> None:
    """Compare the manifest of a snapshot at `path` with the facts in its run's ``run.toml``.

    Raises InputError naming the facts that differ.
    """
    hashes = {name: getattr(manifest, name) for name in IDENTITY_FACTS if facts.get(name)}
    before = manifest.about.get("made_with", {}) | hashes
    changed = [name for name, value in before.items() if facts.get(name) != value]
    if changed:
        raise InputError(f"run.toml has been changed since {path} was made: {', '.join(changed)}")


def versions() -> dict[str, str]:
    """Versions of the software and the processor, on which the bits of a chain may depend."""
    import numba  # slow to import, and needed by new runs only

    return {
        "dsgmcmc": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "h5py": h5py.__version__,
        "cpu": cpu_name(),
    }
