"""Facts about a run in section ``[run]`` of ``run.toml``, and checks that its snapshots agree with them.

The manifest of every snapshot has the hashes of the configuration and of the data. It also has, in
``about.made_with``, the facts that results depend on: centre, range and levels of the ratings, and which side is W. A
reader compares both with ``run.toml``, and refuses a file that has been changed.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
from pydantic import BaseModel, ConfigDict

from dsgmcmc._version import __version__
from dsgmcmc.errors import InputError
from dsgmcmc.parallel.machine import cpu_name
from dsgmcmc.storage.manifest import Manifest, Sha256

Facts = dict[str, Any]

MADE_WITH: Final = "made_with"
#: Path of the data and warnings about them, which may change from job to job.
DATA_FACTS = ("data", "cautions")
#: Hashes that identify a run; every manifest has separate fields for them.
IDENTITY_FACTS = ("data_hash", "config_hash")
#: Facts about the last job.
JOB_FACTS = ("versions",)


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
    return {name: value for name, value in facts.items() if name not in (*DATA_FACTS, *IDENTITY_FACTS, *JOB_FACTS)}


def check_made_with(manifest: Manifest, facts: Mapping[str, Any], path: Path) -> None:
    """Compare the manifest of a snapshot at `path` with the facts in its run's ``run.toml``.

    Raises InputError naming the facts that differ.
    """
    for name, value in (("data_hash", manifest.data_hash), ("config_hash", manifest.config_hash)):
        if facts.get(name) and value != facts[name]:
            raise InputError(f"{path} is of another run, or run.toml has been changed since: {name} differs")
    before = manifest.about.get(MADE_WITH, {})
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
