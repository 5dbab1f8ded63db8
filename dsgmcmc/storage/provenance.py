"""Versions of software on which the bits of a chain may depend."""

from __future__ import annotations

import platform

import h5py
import numpy as np

from dsgmcmc._version import __version__
from dsgmcmc.parallel.machine import cpu_name


def versions() -> dict[str, str]:
    """Versions of software on which the bits of a chain may depend."""
    import numba  # takes its time to import, and only new runs ask

    return {
        "dsgmcmc": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "h5py": h5py.__version__,
        "cpu": cpu_name(),
    }
