"""How accurate the predictions of all chains are, and how a run ended that was to have some accuracy."""

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
    """What a look at all chains has found.

    Attributes
    ----------
    until : str
        The accuracy that was asked for.
    iteration : int
        Iterations made.
    found : dict of str to float
        Of each measure that was asked for the worst value, but for the share `SPARED`; none if there is none to tell.
    reached : bool
        Whether this is the accuracy.
    limit : int
        Iterations after which chains end in any case.
    """

    until: str
    iteration: int
    found: dict[str, float]
    reached: bool
    limit: int

    def table(self) -> dict[str, Any]:
        """What ``summary.json`` has of it."""
        return asdict(self)

    def __str__(self) -> str:
        """What was found."""
        if not self.found:
            return "cannot be told from draws so few, or of unequal weight"
        return ", ".join(f"{LABELS[name][0]} {value:{LABELS[name][1]}}" for name, value in self.found.items())


def ending(look: Mapping[str, Any]) -> str:
    """Say in one line why a run has ended, and how to go on; `look` is the `Look.table` of its summary."""
    now = Look(**look)
    if now.reached:
        better = {
            name: 2 * limit if name == "ess" else (1 + limit) / 2 for name, limit in parse_accuracy(now.until).items()
        }
        return f"ended at iteration {now.iteration:,}: {now}; for more: --resume --until {format_accuracy(better)}"
    if now.iteration >= now.limit:
        more = f"--resume --iterations {2 * now.limit}"
        return f"ended at the limit of {now.limit:,} iterations without {now.until}: {now}; to go on: {more}"
    return f"stopped before {now.until} (at iteration {now.iteration:,}: {now}); to go on: --resume"


def accuracy(values: Float64, interleaved: int, measures: Sequence[str]) -> dict[str, float]:
    """Measure the worst of what is followed, but for the share `SPARED`.

    Parameters
    ----------
    values : (chains, draws, m) float64
        Every draw of what is followed.
    interleaved : int
        Sub-chains of a chain.
    measures : sequence of str
        Of "rhat" and "ess", which is the smaller one of bulk and tail.

    Returns
    -------
    dict of str to float
        Empty if there are too few draws to tell.
    """
    chains = split_subchains(values, interleaved)
    compared = mixing.halves(chains) if len(values) == 1 else chains
    found: dict[str, float] = {}
    if compared.shape[1] < LEAST_DRAWS:
        return found
    if "rhat" in measures:
        found["rhat"] = _worst(mixing.rhat(compared))
    if "ess" in measures:
        found["ess"] = -_worst(-np.minimum(mixing.ess_bulk(chains), mixing.ess_tail(chains)))
    return found


def _worst(values: Float64) -> float:
    """Largest value, but for the share `SPARED`."""
    return float(np.nanquantile(values, 1 - SPARED, method="inverted_cdf"))


def met(name: str, found: float, limit: float) -> bool:
    """Whether a measure is as good as its limit."""
    return found <= limit if name == "rhat" else found >= limit
