"""Accuracy of the monitored predictions over all chains, and how a run with a target accuracy ended.

Shared parameters, such as thresholds and precisions, mix more slowly than predictions, and many wander along directions
that no prediction sees: thresholds with the means of the factors, a precision of biases with these biases. What
predictions see of all of them is how well a draw predicts the test ratings. So the log likelihood of the test ratings
at each draw is the shared parameter that a target looks at. It needs 1 / `SHARED_FRACTION` of the accuracy of
predictions, which tells a chain that has settled from one that still drifts, and is not waited for once predictions
are `ENOUGH_ALONE` times as accurate as wanted: docs/defaults.md has what waiting gains.

A single chain is compared with itself: its halves count as chains, each of which R-hat splits again. 9 in 10 of the
quantities must have the accuracy.

Chains are looked at when all have made the same number of iterations: burn-in and 10 n sweeps, n = 1, 2, ..., 7, 8, 10,
12, 14, 16, 20, ... with at most three significant binary digits. So the end depends on the draws alone, all looks
together cost about as much as six looks at the end, and chains end at most a quarter later than they could.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dsgmcmc.config.accuracy import LEAST_DRAWS, format_accuracy, parse_accuracy
from dsgmcmc.config.chain import ResolvedChain
from dsgmcmc.diagnostics import mixing
from dsgmcmc.diagnostics.convergence import SPARED, split_subchains
from dsgmcmc.targets.base import Followed
from dsgmcmc.types import Float64

LOOK_SWEEPS, LOOK_DIGITS = 10, 3
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

    def against(self, wanted: Mapping[str, float]) -> str:
        """Values of the measures, each with its limit, as text."""
        limit = limits(wanted, self.found)
        shown = [f"{LABELS[name][0]} {value:{LABELS[name][1]}}/{limit[name]:g}" for name, value in self.found.items()]
        return ", ".join(shown)


def next_look(iteration: int, burn_in: int, sweep: int) -> int:
    """Iteration of the first look at `iteration` or later.

    Parameters
    ----------
    iteration, burn_in : int
    sweep : int
        Iterations in a sweep.
    """
    number = max(1, -(-(iteration - burn_in) // (LOOK_SWEEPS * sweep)))
    spacing = 1 << max(0, number.bit_length() - LOOK_DIGITS)
    return burn_in + -(-number // spacing) * spacing * LOOK_SWEEPS * sweep


def look_at(
    config: ResolvedChain,
    gathered: Sequence[tuple[Mapping[tuple[int, int], Followed], Mapping[int, tuple[int, Float64]]]],
) -> Look:
    """Measure the accuracy of all chains.

    Parameters
    ----------
    config : ResolvedChain
        Settings of the run.
    gathered : sequence of (dict, dict)
        From every process: what is followed, by chain and block; and by chain its iteration and the weights of its
        draws, (draws,) float64.
    """
    followed: dict[tuple[int, int], Followed] = {}
    facts: dict[int, tuple[int, Float64]] = {}
    for parts, about in gathered:
        followed.update(parts)
        facts.update(about)
    chains, scores = [], []
    for number in sorted(facts):
        blocks = [followed[key] for key in sorted(followed) if key[0] == number]
        chains.append(np.concatenate([block.values for block in blocks], axis=1))
        scores.append(np.sum([block.score for block in blocks], axis=0))  # in the order of the blocks
    draws = min(map(len, chains))
    weights = np.stack([weight[len(weight) - draws :] for _, weight in facts.values()])
    measured: dict[str, float] = {}
    if mixing.equal_weights(weights):
        values = np.stack([chain[len(chain) - draws :] for chain in chains]).astype(np.float64)
        shared = np.stack([score[len(score) - draws :] for score in scores]) if scores[0].size else None
        measured = accuracy(values, len(config.make_sampler().positions), list(config.wanted), shared)
    return Look(
        until=str(config.until),
        iteration=min(iteration for iteration, _ in facts.values()),
        found=measured,
        reached=reached(config.wanted, measured),
        limit=config.iterations,
    )


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
