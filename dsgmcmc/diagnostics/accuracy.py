"""Accuracy of the monitored predictions over all chains, and how a run with a target accuracy ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dsgmcmc.config.accuracy import LEAST_DRAWS, format_accuracy, parse_accuracy
from dsgmcmc.diagnostics import mixing
from dsgmcmc.diagnostics.convergence import SPARED, split_subchains
from dsgmcmc.types import Float64

LABELS = {"rhat": ("R-hat", ".3f"), "ess": ("ESS", ".0f")}


@dataclass(frozen=True)
class Look:
    """Result of a check of the accuracy.

    Attributes
    ----------
    until : str
        The target accuracy.
    iteration : int
        Iteration of the check.
    found : dict of str to float
        Worst value of each measure in `until`, without the worst `SPARED` of the predictions; empty if unknown.
    reached : bool
        Whether the target is reached.
    limit : int
        Iteration at which chains end in any case.
    """

    until: str
    iteration: int
    found: dict[str, float]
    reached: bool
    limit: int

    def table(self) -> dict[str, Any]:
        """Entry of ``summary.json``."""
        return asdict(self)

    def __str__(self) -> str:
        """Values of the measures, as text."""
        if not self.found:
            return "unknown: too few draws, or draws of unequal weight"
        return ", ".join(f"{LABELS[name][0]} {value:{LABELS[name][1]}}" for name, value in self.found.items())


def ending(look: Mapping[str, Any]) -> str:
    """Say in one line why a run has ended, and how to continue; `look` is the `Look.table` of its summary."""
    now = Look(**look)
    if now.reached:
        better = {
            name: 2 * limit if name == "ess" else (1 + limit) / 2 for name, limit in parse_accuracy(now.until).items()
        }
        return (
            f"reached its target ({now}, wanted {now.until}) at iteration {now.iteration:,}; "
            f"to continue: --resume --until {format_accuracy(better)}"
        )
    if now.iteration >= now.limit:
        more = f"--resume --iterations {2 * now.limit}"
        return f"ended at the limit of {now.limit:,} iterations without {now.until} ({now}); to continue: {more}"
    return f"stopped at iteration {now.iteration:,}, before {now.until} ({now}); to continue: --resume"


def accuracy(values: Float64, interleaved: int, measures: Sequence[str]) -> dict[str, float]:
    """Measure the worst monitored quantity, after leaving out the worst `SPARED` of them.

    Parameters
    ----------
    values : (chains, draws, m) float64
        All draws of the monitored quantities.
    interleaved : int
        Sub-chains per chain.
    measures : sequence of str
        "rhat", "ess" (the smaller one of bulk and tail ESS), or both.

    Returns
    -------
    dict of str to float
        Empty if there are too few draws.
    """
    chains = split_subchains(values, interleaved)
    compared = mixing.halves(chains) if len(values) == 1 else chains
    result: dict[str, float] = {}
    if compared.shape[1] < LEAST_DRAWS:
        return result
    if "rhat" in measures:
        result["rhat"] = _worst(mixing.rhat(compared))
    if "ess" in measures:
        result["ess"] = -_worst(-np.minimum(mixing.ess_bulk(chains), mixing.ess_tail(chains)))
    return result


def _worst(values: Float64) -> float:
    """Largest value, after leaving out the largest `SPARED` of them."""
    return float(np.nanquantile(values, 1 - SPARED, method="inverted_cdf"))


def met(name: str, value: float, limit: float) -> bool:
    """Whether a measure reaches its limit."""
    return value <= limit if name == "rhat" else value >= limit
