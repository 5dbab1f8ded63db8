"""Distributed stochastic-gradient MCMC for large Bayesian matrix factorisation, and for any other density.

What users import; everything else is imported from its own module.
"""

from __future__ import annotations

from dsgmcmc._version import __version__

TYPE_CHECKING = False  # nothing is imported here: until the command line has taken over Ctrl-C, it ends in a traceback
if TYPE_CHECKING:
    from typing import Any

    from dsgmcmc.bpmf import BPMF
    from dsgmcmc.densities.sample import sample_density
    from dsgmcmc.posterior.fitted import open_run

__all__ = ["BPMF", "__version__", "open_run", "sample_density"]

_HOMES = {
    "BPMF": "bpmf",
    "open_run": "posterior.fitted",
    "sample_density": "densities.sample",
}


def __getattr__(name: str) -> Any:
    """Import what users ask for when they ask for it: the command line starts without it."""
    from importlib import import_module

    if name in _HOMES:
        return getattr(import_module(f"dsgmcmc.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
