"""Distributed stochastic-gradient MCMC for large Bayesian matrix factorisation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsgmcmc._version import __version__

if TYPE_CHECKING:
    from dsgmcmc.bpmf import BPMF
    from dsgmcmc.posterior.run import open_run

__all__ = ["BPMF", "__version__", "open_run"]


def __getattr__(name: str) -> Any:
    """Import what users ask for when they ask for it: the command line starts without it."""
    if name == "BPMF":
        from dsgmcmc.bpmf import BPMF

        return BPMF
    if name == "open_run":
        from dsgmcmc.posterior.run import open_run

        return open_run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
