"""Distributed stochastic-gradient MCMC for Bayesian matrix factorisation and other densities.

This module exports the names for users; all other names stay in their modules.
"""

from __future__ import annotations

from dsgmcmc._version import __version__

TYPE_CHECKING = False  # importing `typing` takes time, during which Ctrl-C would print a traceback
if TYPE_CHECKING:
    from typing import Any

    from dsgmcmc.bpmf import BPMF
    from dsgmcmc.densities.sample import sample_density
    from dsgmcmc.errors import RunWarning
    from dsgmcmc.posterior.fitted import open_run

__all__ = ["BPMF", "RunWarning", "__version__", "open_run", "sample_density"]

_MODULES = {
    "BPMF": "bpmf",
    "RunWarning": "errors",
    "open_run": "posterior.fitted",
    "sample_density": "densities.sample",
}


def __getattr__(name: str) -> Any:
    """Import a name on its first use, so that the command line starts faster."""
    from importlib import import_module

    if name in _MODULES:
        return getattr(import_module(f"dsgmcmc.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
