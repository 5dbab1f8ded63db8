"""Accuracy of the monitored predictions over all chains, and how a run with a target accuracy ended.

Shared parameters, such as thresholds and precisions, mix more slowly than predictions, and many wander along directions
that no prediction sees: thresholds with the means of the factors, a precision of biases with these biases. What
predictions see of all of them is how well a draw predicts the test ratings. So the log likelihood of the test ratings
at each draw is the shared parameter that a target looks at. It needs 1 / `SHARED_FRACTION` of the accuracy of
predictions, which tells a chain that has settled from one that still drifts, and is not waited for once predictions
are `ENOUGH_ALONE` times as accurate as wanted: docs/defaults.md has what waiting gains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dsgmcmc.config.accuracy import LEAST_DRAWS, format_accuracy, parse_accuracy
from dsgmcmc.diagnostics import mixing
from dsgmcmc.diagnostics.convergence import SPARED, split_subchains
from dsgmcmc.types import Float64

#: Shared parameters need this fraction of the ESS, and this multiple of the excess of R-hat over 1.
SHARED_FRACTION = 10
ENOUGH_ALONE = 1.5
LABELS = {
    "rhat": ("R-hat", ".3f"),
    "ess": ("ESS", ".0f"),
    "shared_rhat": ("R-hat of the test log likelihood", ".3f"),
    "shared_ess": ("ESS of the test log likelihood", ".0f"),
}


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
        Worst value of each measure in `until`, without the worst `SPARED` of the predictions, and as ``shared_ess`` and
        ``shared_rhat`` that of the log likelihood of the test ratings; empty if unknown.
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
        better = format_accuracy(scaled(parse_accuracy(now.until), 2))
        return (
            f"reached its target ({now}, wanted {now.until}) at iteration {now.iteration:,}; "
            f"to continue: --resume --until {better}"
        )
    if now.iteration >= now.limit:
        more = f"--resume --iterations {2 * now.limit}"
        return f"ended at the limit of {now.limit:,} iterations without {now.until} ({now}); to continue: {more}"
    return f"stopped at iteration {now.iteration:,}, before {now.until} ({now}); to continue: --resume"


def accuracy(
    values: Float64, interleaved: int, measures: Sequence[str], shared: Float64 | None = None
) -> dict[str, float]:
    """Measure the worst monitored quantity, after leaving out the worst `SPARED` of them.

    Parameters
    ----------
    values : (chains, draws, m) float64
        All draws of the monitored quantities.
    interleaved : int
        Sub-chains per chain.
    measures : sequence of str
        "rhat", "ess" (the smaller one of bulk and tail ESS), or both.
    shared : (chains, draws) float64, optional
        Log likelihood of the test ratings at each draw, which is measured by itself.

    Returns
    -------
    dict of str to float
        Empty if there are too few draws.
    """
    result = _worst(values, interleaved, measures)
    if shared is not None and result:
        of_shared = _worst(shared[..., None], interleaved, measures)
        result |= {f"shared_{name}": value for name, value in of_shared.items()}
    return result


def _worst(values: Float64, interleaved: int, measures: Sequence[str]) -> dict[str, float]:
    """Measures of the worst quantity, after leaving out the worst `SPARED` of them."""
    chains = split_subchains(values, interleaved)
    compared = mixing.halves(chains) if len(values) == 1 else chains
    result: dict[str, float] = {}
    if compared.shape[1] < LEAST_DRAWS:
        return result
    if "rhat" in measures:
        result["rhat"] = _spared(mixing.rhat(compared))
    if "ess" in measures:
        result["ess"] = -_spared(-np.minimum(mixing.ess_bulk(chains), mixing.ess_tail(chains)))
    return result


def _spared(values: Float64) -> float:
    """Largest value, after leaving out the largest `SPARED` of them."""
    return float(np.nanquantile(values, 1 - SPARED, method="inverted_cdf"))


def scaled(wanted: Mapping[str, float], times: float) -> dict[str, float]:
    """Limits that are so many times as accurate."""
    return {name: times * limit if name == "ess" else 1 + (limit - 1) / times for name, limit in wanted.items()}


def limits(wanted: Mapping[str, float], found: Mapping[str, float]) -> dict[str, float]:
    """Limit of each measure that was found."""
    of_shared = {f"shared_{name}": limit for name, limit in scaled(wanted, 1 / SHARED_FRACTION).items()}
    return {name: limit for name, limit in {**wanted, **of_shared}.items() if name in found}


def reached(wanted: Mapping[str, float], found: Mapping[str, float]) -> bool:
    """Whether predictions, and shared parameters, are as accurate as wanted; or predictions `ENOUGH_ALONE` times so."""

    def met(wanted: Mapping[str, float]) -> bool:
        return all(
            found[name] <= limit if name.endswith("rhat") else found[name] >= limit for name, limit in wanted.items()
        )

    return bool(found) and met(wanted) and (met(limits(wanted, found)) or met(scaled(wanted, ENOUGH_ALONE)))
