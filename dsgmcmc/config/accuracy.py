"""The target accuracy at which chains end: its notation, and whether it can be reached and measured.

docs/defaults.md gives the reasons for the default, an ESS of 100 per chain.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from dsgmcmc.settings import named

#: Measures of accuracy, each with a lower bound of its limit.
MEASURES = {"rhat": 1.0, "ess": 0.0}

LEAST_DRAWS = 4  # per chain; fewer draws give no information about mixing
ESS_PER_CHAIN = 100  # with a smaller ESS, R-hat and tail quantiles are unreliable [Vehtari 2021, section 5]


def parse_accuracy(text: str) -> dict[str, float]:
    """Parse a target accuracy: ``ess=400``, ``rhat=1.01``, or both, separated by a comma.

    Returns
    -------
    dict of str to float
        Limit of each measure in `text`.

    Raises
    ------
    ValueError
        If `text` is malformed.
    """
    wanted: dict[str, float] = {}
    for part in text.split(","):
        name, _, number = (word.strip() for word in part.partition("="))
        try:
            limit = float(number)
        except ValueError:
            limit = 0.0
        if name not in MEASURES or name in wanted or not isfinite(limit) or limit <= MEASURES[name]:
            raise ValueError("must be like 'ess=400', 'rhat=1.01' (above 1) or 'ess=400,rhat=1.01', or 'none'")
        wanted[name] = limit
    return wanted


def format_accuracy(wanted: Mapping[str, float]) -> str:
    """Format a target accuracy; the inverse of `parse_accuracy`."""
    return ",".join(f"{name}={limit:g}" for name, limit in wanted.items())


def why_unreachable(settings: Mapping[str, Any], sweep: int) -> str:
    """Explain why chains cannot reach the target accuracy, or why it cannot be measured; empty if they can.

    Parameters
    ----------
    settings : mapping of str to object
        Settings of a `dsgmcmc.config.chain.ResolvedChain`.
    sweep : int
        Iterations in a sweep.
    """
    iterations, burn_in, chains = settings["iterations"], settings["burn_in"], settings["chains"]
    draws = max(0, iterations - burn_in) // settings["thin"]
    if parse_accuracy(settings["until"]).get("ess", 0) > draws * chains:
        return f"{iterations:,} iterations make at most {draws:,} draws per chain: raise iterations, or lower thin"
    step = settings["sampler"].config.step
    if step(burn_in, sweep, burn_in) != step(iterations - 1, sweep, burn_in):
        return (
            "the step changes after burn-in (sampler.warm_up or decay), so draws have unequal weights, but R-hat and "
            f"ESS need equal ones: raise burn_in, or give {named('until')} none"
        )
    return ""
